"""What SQL may contain: allow-lists and limits, as data. Whatever is not here is refused.

Function names are kept apart by position, because one name can be two things: `histogram` is an aggregate in a
select list and a macro that opens files in FROM.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

from ingero_mcp.views import relations

RELATIONS: frozenset[str] = frozenset(relations())
NEVER_SHADOWED = "events"
"""The relation whose name no common table expression may have. The views' names (nodes, ops, chains) are what people
call their own, and the resolution of names is ours anyway: what is no expression in scope runs as main.<name>."""

MAX_CHARS = 20_000
MAX_BRACKETS = 400
"""Opening brackets in the text, counted before any parser runs: DuckDB's needs 1.2 s for 2500 unclosed ones,
and its time grows with their square."""
MAX_NODES = 3_000
MAX_DEPTH = 100
MAX_JOINS = 24
MAX_SERIES = 1_000_000
"""Rows of range() and generate_series(), where they are counted in numbers."""
MAX_VALUE = 2_000
MAX_EXPANDED = 20_000
MAX_COLUMNS = 10_000
MAX_REFERENCES = 500


_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def folded(name: str) -> str:
    """`name` as the engine compares it: only A to Z lose their case.

    str.lower knows more than that: the Kelvin sign becomes a k, and a table k was read as the common table
    expression of that name.
    """
    return name.translate(_ASCII_LOWER)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


TABLE_FUNCTIONS = _names("range generate_series unnest json_each json_tree")

OPERATORS = _names(
    """
    + - * / // % ^ ** || & | << >> ~ @ && = <> != < > <= >= -> ->> <-> ^@ @> <@ ~~ !~~ ~~* !~~* ~~~
    """
)

AGGREGATES = _names(
    """
    any_value approx_count_distinct approx_quantile arbitrary arg_max arg_max_null arg_max_nulls_last arg_min
    arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bool_and bool_or corr
    count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean geometric_mean
    group_concat histogram histogram_exact json_group_array json_group_object kahan_sum kurtosis kurtosis_pop
    last list listagg mad max max_by mean median min min_by mode product quantile quantile_cont quantile_disc
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem skewness
    stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop var_samp variance wavg weighted_avg
    """
)

WINDOW = _names(
    """
    cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense
    row_number
    """
)

MATHS = _names(
    """
    abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide
    even exp fdiv floor fmod gamma gcd greatest greatest_common_divisor hash isfinite isinf isnan lcm least
    least_common_multiple lgamma ln log log10 log2 md5 mod multiply nextafter pi pow power radians random
    round round_even roundbankers sha1 sha256 sign signbit sin sinh sqrt subtract tan tanh trunc xor
    """
)

CONDITIONALS = _names("alias coalesce enum_range if ifnull nullif typeof")

TEXT = _names(
    """
    array_to_string ascii base64 bit_length char_length character_length chr concat concat_ws contains decode
    editdist3 encode ends_with format_bytes formatreadabledecimalsize formatreadablesize from_base64 from_hex
    hamming hex ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme
    len length length_grapheme levenshtein like_escape lower ltrim mismatches nfc_normalize not_ilike_escape
    not_like_escape octet_length ord overlay
    parse_dirname parse_dirpath parse_filename position prefix regexp_escape regexp_extract regexp_extract_all
    regexp_full_match regexp_matches regexp_replace regexp_split_to_array replace reverse right right_grapheme
    rtrim split split_part starts_with str_split str_split_regex string_split string_split_regex
    string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix to_base64 to_hex
    translate trim ucase unhex unicode upper
    """
)

TIME = _names(
    """
    age ago century current_date current_localtime current_localtimestamp date_add date_diff date_part
    date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear
    days_in_month decade epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour
    isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns
    make_timestamptz microsecond millennium millisecond minute month monthname nanosecond normalized_interval
    now quarter second strftime strptime time_bucket timezone timezone_hour timezone_minute to_centuries
    to_days to_decades to_hours to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters
    to_seconds to_timestamp to_weeks to_years today
    transaction_timestamp try_strptime week weekday weekofyear year yearweek
    """
)

JSON = _names(
    """
    array_to_json json json_array json_array_length json_contains json_exists json_extract json_extract_path
    json_extract_path_text json_extract_string json_insert json_keys json_merge_patch json_object json_quote
    json_remove json_replace json_set json_type json_valid json_value row_to_json to_json
    variant_typeof
    """
)

NESTED = _names(
    """
    apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any
    array_indexof array_inner_product array_intersect array_length array_pop_back array_pop_front
    array_position array_prepend array_push_back array_push_front array_reduce array_reverse
    array_reverse_sort array_select array_slice array_sort array_transform array_unique array_value
    array_where array_zip aggregate cardinality element_at filter flatten grade_up list_aggr list_aggregate
    list_any_value list_append list_approx_count_distinct list_apply list_avg list_bit_and list_bit_or
    list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains list_cosine_distance
    list_cosine_similarity list_count list_distance list_distinct list_dot_product list_element list_entropy
    list_extract list_filter list_first list_grade_up list_has list_has_all list_has_any list_histogram
    list_indexof list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max
    list_median list_min list_mode list_pack list_position list_prepend list_product list_reduce list_reverse
    list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop list_stddev_samp
    list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp list_where
    list_zip map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value
    map_from_entries map_keys map_values reduce row struct_concat struct_contains struct_extract
    struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
    struct_update struct_values unnest
    """
)

SCALAR_FUNCTIONS = OPERATORS | AGGREGATES | WINDOW | MATHS | CONDITIONALS | TEXT | TIME | JSON | NESTED

NAMED_AGGREGATE = _names("list_aggr list_aggregate array_aggr array_aggregate aggregate")
"""These run the aggregate that their second argument names, so that argument is held to AGGREGATES too."""

STORED_ARGUMENTS = _names("json_contains variant_typeof")
"""They follow JSON down recursively: text of a million brackets ends the process. So they take columns as they are
stored, whose depth the wire limits, and short literals."""

SMALL_PATTERNS = _names("~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape")
MAX_PATTERN = 8.0
"""Matching a pattern of half a million characters against a text of a million took four minutes, in one call."""

LAMBDA_FUNCTIONS = _names(
    """
    apply array_apply list_apply array_transform list_transform filter array_filter list_filter reduce
    array_reduce list_reduce
    """
)

SESSION_NAMES = _names(
    """
    current_catalog current_database current_query current_role current_schema current_user inet_server_addr
    session_user user
    """
)
"""SQL's functions without brackets. In DuckDB's tree they look like columns."""

# Not among the types: VARIANT, because DuckDB 2.0.1 ends the process when it compares, hashes or prints a deeply nested
# one, and BIGNUM, whose values grow with each multiplication.
TYPES = _names(
    """
    array bigint binary bit bitstring blob bool boolean bpchar bytea char date datetime dec decimal
    double enum float float4 float8 hugeint int int1 int128 int16 int2 int32 int4 int64 int8 integer integral
    interval json list logical long map null numeric nvarchar real row short signed smallint string struct
    text time time_ns timestamp timestamp_ms timestamp_ns timestamp_s timestamp_us timestamptz timestamptz_ns
    timetz tinyint ubigint uhugeint uint128 uint16 uint32 uint64 uint8 uinteger union usmallint utinyint uuid
    varbinary varchar
    """
) | {"time with time zone", "timestamp with time zone"}

COLLATIONS = _names("binary c nfc noaccent nocase posix")

# DuckDB's own tree (json_serialize_sql): the kinds of node, and of each kind the fields that may be set. A field
# that a future version adds is refused until it is listed.

EXPRESSIONS: dict[str, frozenset[str]] = {
    "BETWEEN": _names("input lower upper"),
    "CASE": _names("case_checks else_expr"),
    "CAST": _names("child try_cast type_expr"),
    "COLLATE": _names("child collation"),
    "COLUMN_REF": _names("column_names"),
    "COMPARISON": _names("left right"),
    "CONJUNCTION": _names("children"),
    "CONSTANT": _names("literal"),
    "FUNCTION": _names(
        """
        arguments catalog distinct filter function_name is_legacy_function_call is_operator order_bys
        qualified_name schema
        """
    ),
    "LAMBDA": _names("expr lhs syntax_type"),
    "OPERATOR": _names("children"),
    "POSITIONAL_REFERENCE": _names("index"),
    "STAR": _names("columns exclude_list expr qualified_exclude_list relation_name rename_list replace_list"),
    "SUBQUERY": _names("child comparison_type subquery subquery_type"),
    "TYPE": _names("catalog children qualified_name schema type_name"),
    "WINDOW": _names(
        """
        arg_orders arguments catalog default_expr distinct end end_expr exclude_clause filter_expr function_name
        has_ignore_nulls ignore_nulls is_legacy_function_call offset_expr orders partitions qualified_name schema
        start start_expr
        """
    ),
}

NODES: dict[str, frozenset[str]] = {
    "SELECT_NODE": _names(
        """
        aggregate_handling cte_map from_table group_expressions group_sets having modifiers qualify sample
        select_list where_clause
        """
    ),
    "SET_OPERATION_NODE": _names("children cte_map left modifiers right setop_all setop_type"),
    "BASE_TABLE": _names("catalog_name column_name_alias qualified_name sample schema_name table_name"),
    "EMPTY": frozenset(),
    "EXPRESSION_LIST": _names("expected_names values"),
    "JOIN": _names(
        "condition is_implicit join_type left nearest_count nearest_order_type ref_type right using_columns"
    ),
    "PIVOT": _names("aggregates column_name_alias groups include_nulls pivots source unpivot_names"),
    "SUBQUERY": _names("column_name_alias sample subquery"),
    "TABLE_FUNCTION": _names("column_name_alias function sample with_ordinality"),
    "DISTINCT_MODIFIER": _names("distinct_on_targets"),
    "LIMIT_MODIFIER": _names("limit limit_type offset"),
    "ORDER_MODIFIER": _names("orders"),
    "ORDER_DEFAULT": _names("expression null_order"),
    "ASCENDING": _names("expression null_order"),
    "DESCENDING": _names("expression null_order"),
}

EVERYWHERE = _names("alias class query_location query_location_length type")

CONTAINERS: dict[str, frozenset[str]] = {
    "arguments": _names("expression name"),
    "case_checks": _names("then_expr when_expr"),
    "cte_map": _names("map"),
    "entries": _names("alias star_expr values"),
    "literal": _names("kind text"),
    "map": _names("key value"),
    "pivots": _names("entries pivot_expressions unpivot_names"),
    "qualified_exclude_list": _names("catalog column schema table"),
    "qualified_name": _names("path"),
    "rename_list": _names("key value"),
    "key": _names("catalog column schema table"),
    "replace_list": _names("key value"),
    "sample": _names("is_percentage method repeatable sample_rate sample_size seed"),
    "sample_size": _names("is_null type value"),
    "subquery": _names("node"),
    "type": _names("id"),
    "value": _names("aliases materialized query_node"),
    "values": _names("is_null type value"),
}
"""Plain objects, by the name of the field that holds them."""

OPERATOR_TYPES = _names(
    """
    ARRAY_CONSTRUCTOR ARRAY_EXTRACT ARRAY_SLICE COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION OPERATOR_COALESCE
    OPERATOR_IS_NOT_NULL OPERATOR_IS_NULL OPERATOR_NOT OPERATOR_NULLIF OPERATOR_TRY OPERATOR_UNPACK
    STRUCT_EXTRACT
    """
)

JOIN_KINDS = _names("ASOF CROSS DEPENDENT NATURAL POSITIONAL REGULAR")

# sqlglot's tree, by class name. Its classes for functions are those that it builds for SCALAR_FUNCTIONS and for
# syntax (CAST, CASE, EXISTS, ...); all other functions are Anonymous there and held to the lists of names.

SQLGLOT_NODES = _names(
    """
    Add Alias Aliases All Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr
    BitwiseRightShift BitwiseXor Boolean Bracket ByteString CTE Column ColumnDef Comprehension Cube DPipe
    DataType DataTypeParam Distinct Div Dot EQ Escape Except Fetch Filter From GT GTE Glob Group GroupingSets
    Having ILike Identifier IgnoreNulls In IntDiv Intersect Interval IntervalSpan Is JSON JSONKeyValue
    JSONPath JSONPathKey JSONPathRecursive JSONPathRoot JSONPathSlice JSONPathSubscript JSONPathWildcard Join
    Kwarg LT LTE Lambda Lateral Like Limit LimitOptions Literal Mod Mul NEQ Neg Not Null NullSafeEQ
    NullSafeNEQ Offset Order Ordered Overlaps Paren Pivot PivotAlias PositionalColumn PropertyEQ Qualify
    RawString RespectNulls Rollup Select SimilarTo Slice Star Sub Subquery Table TableAlias TableColumn
    TableSample Tuple Union UnpivotColumns Values Var Where Window WindowSpec With WithinGroup
    """
)

SQLGLOT_FUNCTIONS = _names(
    """
    Abs Acos Acosh And AnyValue ApproxDistinct ApproxQuantile ArgMax ArgMin Array ArrayAgg ArrayAppend
    ArrayConcat ArrayContains ArrayContainsAll ArrayContainedBy ArrayDistinct ArrayFilter ArrayIntersect
    ArrayMax ArrayMin ArrayOverlaps ArrayPosition ArrayPrepend ArrayReverse ArraySize ArraySlice ArraySort
    ArrayToString Ascii Asin Asinh Atan Atan2 Atanh Avg BitLength BitwiseAndAgg BitwiseOrAgg BitwiseXorAgg
    Case Cast Cbrt Ceil Chr Coalesce Collate Columns Concat ConcatWs Contains Corr Cos Cosh CosineDistance Cot
    Count CountIf CovarPop CovarSamp CumeDist CurrentDate CurrentTime CurrentTimestamp DateAdd DateBin
    DateDiff DateFromParts Day DayOfMonth DayOfWeek DayOfWeekIso DayOfYear Dayname Decode Degrees DenseRank
    Encode EndsWith EuclideanDistance Exists Exp Explode Extract First FirstValue Flatten Floor FromBase64
    GenerateSeries Greatest GroupConcat Grouping GroupingId Hex Hour If IsInf IsNan JSONArray JSONExtract
    JSONExtractScalar JSONKeys JSONObject JSONRemove JSONSet JSONType JarowinklerSimilarity Kurtosis Lag Last
    LastDay LastValue Lead Least Left Length Levenshtein Ln Localtime Localtimestamp Log LogicalAnd LogicalOr
    Lower MD5 Map MapFromEntries MapKeys Max Median Min Minute Mode Month Monthname NthValue Ntile Nullif Or
    Overlay ParseJSON PercentRank PercentileCont PercentileDisc Pi Pow Quantile Quarter Radians Rand Rank
    Reduce RegexpExtract RegexpExtractAll RegexpFullMatch RegexpILike RegexpLike RegexpReplace RegexpSplit
    RegrAvgx RegrAvgy RegrCount RegrIntercept RegrR2 RegrSlope RegrSxx RegrSxy RegrSyy Replace Reverse Right
    Round RowNumber SHA SHA2 Second Sign Sin Sinh Skewness Split SplitPart Sqrt StartsWith Stddev StddevPop
    StddevSamp StrPosition StrToTime Struct StructExtract Substring Sum Tan Tanh TimeFromParts TimeToStr
    TimeToUnix TimestampFromParts TimestampTrunc ToBase64 ToDays ToMap Transform Translate Trim Trunc Try
    TryCast Typeof Unhex Unicode UnixToTime Unnest Upper Variance VariancePop Week WeekOfYear Year
    """
)

SQLGLOT_SYNTAX = _names("all unpack")
"""Syntax that sqlglot takes for a function of that name: `= ALL (...)`, and `*COLUMNS(...)` as DuckDB renders it."""

SQLGLOT_TABLE_FUNCTIONS = _names("GenerateSeries Anonymous")
"""Classes that a table function may have; Anonymous ones are held to TABLE_FUNCTIONS by name."""
