"""Every function of DuckDB that may not be called, by why: what the allow-lists leave out, left out on purpose.

Nothing is refused because it stands here; it is refused because it is not on the lists of `allowed.py`. What stands
here is the judgement: each function of the engine was looked at, and a test fails on one that nobody has, in this
version or the next. It also says what a refusal tells of a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ingero_mcp.sqlguard.allowed import folded


@dataclass(frozen=True, slots=True)
class Refused:
    """Functions refused for one reason: `why` completes "it ...", `instead` says what there is in their stead.

    Names are kept by where they would stand: as a value, in FROM, behind PRAGMA. A star stands for the rest of a name.
    """

    why: str
    instead: str
    values: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    pragmas: tuple[str, ...] = ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FILES: Final = Refused(
    why="reads files or addresses",
    instead="Files cannot be read here; what was recorded is in events.",
    tables=_names(
        """
        glob parquet_bloom_probe parquet_file_metadata parquet_full_metadata parquet_kv_metadata parquet_metadata
        parquet_page_index parquet_scan parquet_schema read_blob read_csv read_csv_auto read_duckdb read_json
        read_json_auto read_json_objects read_json_objects_auto read_ndjson read_ndjson_auto read_ndjson_objects
        read_parquet read_single_csv_file read_single_json_file read_single_parquet_file read_text sniff_csv
        """
    ),
    pragmas=_names("add_parquet_key copy_database import_database"),
)
_TABLES: Final = Refused(
    why="opens whatever table or file it is given",
    instead="Name the relation in FROM and write the aggregates: min, max, approx_quantile, histogram(rank).",
    tables=_names("duckdb_table_sample histogram histogram_values pragma_storage_info seq_scan summary"),
    pragmas=_names("storage_info"),
)
_POINTERS: Final = Refused(
    why="takes addresses in memory",
    instead="Name a relation in FROM.",
    tables=_names("arrow_scan arrow_scan_dumb pandas_scan python_arrow_scan python_map_function"),
)
_DYNAMIC: Final = Refused(
    why="runs or plans SQL that is given as text",
    instead="Write the query itself in place of its text.",
    values=_names("json_deserialize_sql json_serialize_plan json_serialize_sql"),
    tables=_names("json_execute_serialized_sql query query_table"),
    pragmas=_names("json_execute_serialized_sql"),
)
_CATALOG: Final = Refused(
    why="tells of the catalog, the session or the settings",
    instead="The relations and their columns are listed in the resource fleet://schema.",
    values=_names(
        """
        col_description current_catalog current_connection_id current_database current_query current_query_id
        current_role current_schema current_schemas current_setting current_transaction_id current_user
        format_pg_type format_type get_block_size has_any_column_privilege has_column_privilege
        has_database_privilege has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
        has_schema_privilege has_sequence_privilege has_server_privilege has_table_privilege
        has_tablespace_privilege in_search_path inet_client_addr inet_client_port inet_server_addr
        inet_server_port map_to_pg_oid map_type_id_to_pg_oid obj_description pg_collation_is_visible
        pg_conf_load_time pg_conversion_is_visible pg_function_is_visible pg_get_constraintdef pg_get_expr
        pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema pg_opclass_is_visible
        pg_operator_is_visible pg_opfamily_is_visible pg_postmaster_start_time pg_table_is_visible
        pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible
        pg_type_is_visible session_user shobj_description txid_current user version
        """
    ),
    tables=_names(
        """
        duckdb_approx_database_count duckdb_available_metrics duckdb_columns duckdb_connection_count
        duckdb_constraints duckdb_coordinate_systems duckdb_databases duckdb_dependencies duckdb_dialects
        duckdb_eviction_queues duckdb_extension_repositories duckdb_extensions duckdb_external_file_cache
        duckdb_external_resource_types duckdb_external_resources duckdb_functions duckdb_grammar_extensions
        duckdb_indexes duckdb_keywords duckdb_live_query_metrics duckdb_log_contexts duckdb_logs
        duckdb_logs_parsed duckdb_memory duckdb_optimizers duckdb_prepared_statements duckdb_profiling_settings
        duckdb_schemas duckdb_secret_type_parameters duckdb_secret_types duckdb_secrets duckdb_sequences
        duckdb_settings duckdb_tables duckdb_temporary_files duckdb_triggers duckdb_types duckdb_variables
        duckdb_views icu_calendar_names pg_timezone_names pragma_collations pragma_database_size
        pragma_metadata_info pragma_platform pragma_show pragma_table_info pragma_user_agent pragma_version
        which_secret
        """
    ),
    pragmas=_names(
        """
        collations database_list database_size extension_versions functions metadata_info platform show
        show_databases show_tables show_tables_expanded table_info user_agent version
        """
    ),
)
_EFFECTS: Final = Refused(
    why="changes settings, files or the session, or waits",
    instead="This only reads.",
    values=_names("pg_sleep setseed sleep_ms write_log"),
    tables=_names(
        """
        add_grammar_extension checkpoint create_external_resource deregister_external_resource
        destroy_external_resource disable_logging disable_profiling enable_logging enable_profiling
        force_checkpoint register_external_resource register_external_resource_type remove_grammar_extension
        truncate_duckdb_logs
        """
    ),
    pragmas=_names(
        """
        disable_checkpoint_on_shutdown disable_object_cache disable_optimizer disable_print_progress_bar
        disable_profile disable_profiling disable_progress_bar disable_verification disable_verify_parallelism
        enable_checkpoint_on_shutdown enable_object_cache enable_optimizer enable_print_progress_bar
        enable_profile enable_profiling enable_progress_bar enable_verification force_checkpoint
        verify_parallelism
        """
    ),
)
_STATE: Final = Refused(
    why="depends on a sequence, a variable or a state that there is none of",
    instead="To number rows use row_number() OVER (ORDER BY timestamp_ns).",
    values=_names("currval getvariable nextval setval"),
)
_STOPS: Final = Refused(
    why="ends the query with a message of its own",
    instead="Return the condition as a column, or filter on it.",
    values=_names("assert_true error"),
)
_ANY_LENGTH: Final = Refused(
    why="makes text or lists of any length, which no memory limit bounds",
    instead="Write a literal, use ||, or take a series in FROM.",
    values=_names(
        """
        array_resize bar bitstring equi_width_bins format generate_series generate_subscripts list_resize lpad
        printf range repeat reservoir_quantile rpad to_base
        """
    ),
    tables=_names("repeat repeat_row"),
)
_MEMORY: Final = Refused(
    why="needs memory that grows with the square of its arguments or with a number among them",
    instead="Use levenshtein or jaro_winkler_similarity; for the most frequent GROUP BY ... ORDER BY count(*) DESC.",
    values=_names("approx_top_k damerau_levenshtein lttb"),
)
_FACTORIAL: Final = Refused(
    why="overflows into an error at small numbers",
    instead="Use gamma(n + 1).",
    values=_names("!__postfix factorial"),
)
_CRASH: Final = Refused(
    why="can end the process on deeply nested values",
    instead="Use json_extract_string(attrs_json, '$.a'), json_keys or json_type, or json_each(attrs_json) in FROM.",
    values=_names(
        """
        from_json from_json_strict json_deep_merge json_group_structure json_merge_patch_diff json_normalize
        json_pretty json_strip_nulls json_structure json_transform json_transform_strict variant_array_length
        variant_bytes_to_variant variant_comparator variant_contains variant_exists variant_extract
        variant_extract_string variant_group_array variant_group_object variant_keys variant_normalize
        variant_to_parquet_variant variant_type
        """
    ),
)
_INTERNAL: Final = Refused(
    why="belongs to the inside of the engine",
    instead="Use DuckDB's ordinary functions.",
    values=(
        *_names(
            """
            <=> __between __cast __internal_* array_to_string_comma_default bitstring_byte_comparable
            can_cast_implicitly combine combine_aggr constant_or_null create_sort_key decimal_average
            decimal_division finalize icu_sort_key index_key invoke is_histogram_other_bin
            json_copy_strftime_if_date json_copy_strftime_if_timestamp remap_struct replace_type stats
            sum_no_overflow timetz_byte_comparable to_aggregate_state unpivot_list vector_type
            parse_duckdb_log_message hive_partition_component
            """
        ),
        "is distinct from",
        "is not distinct from",
    ),
    tables=_names("test_all_types test_vector_types"),
)
_COLLATIONS: Final = Refused(
    why="is a collation",
    instead="Write node_id COLLATE NOCASE.",
    values=_names("collate_* icu_collate_*"),
)
_TYPES: Final = Refused(
    why="makes or takes apart types that no public relation has",
    instead="Use CAST, TRY_CAST and typeof.",
    values=_names(
        """
        bit_position bitstring_agg cast_to_type enum_code enum_first enum_last enum_range_boundary get_bit
        get_type make_type pg_typeof set_bit st_* union_extract union_tag union_value vertex_extract
        """
    ),
)
_NOT_NEEDED: Final = Refused(
    why="has no use in questions about events",
    instead="Use DuckDB's ordinary functions and aggregates.",
    values=_names(
        """
        array_negative_dot_product array_negative_inner_product bin binom from_binary gen_random_uuid
        list_negative_dot_product list_negative_inner_product md5_number md5_number_lower md5_number_upper
        parse_formatted_bytes parse_path path_join pg_size_pretty regexp_split_to_table switch to_binary unbin
        url_decode url_encode uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
        """
    ),
)
REFUSED: Final = (
    _FILES,
    _TABLES,
    _POINTERS,
    _DYNAMIC,
    _CATALOG,
    _EFFECTS,
    _STATE,
    _STOPS,
    _ANY_LENGTH,
    _MEMORY,
    _FACTORIAL,
    _CRASH,
    _INTERNAL,
    _COLLATIONS,
    _TYPES,
    _NOT_NEEDED,
)


def refused(name: str, *, in_from: bool) -> Refused | None:
    """Why the function `name` of DuckDB is refused there; None if it is allowed or DuckDB has none of that name.

    A name that DuckDB has only at the other place counts too: `SELECT read_text(...)` is meant as what FROM would do.
    """
    places = ("tables", "values") if in_from else ("values", "tables")
    for place in places:
        for one in REFUSED:
            if any(fnmatchcase(folded(name), pattern) for pattern in getattr(one, place)):
                return one
    return None
