#!/usr/bin/env bash
# What the kernel tests need on Debian or Ubuntu: BCC, kernel headers where BCC looks for them, tracefs and debugfs.
# Run as root; does nothing that is done already.
set -euo pipefail

if [ "$(id -u)" -ne 0 ]; then
  echo "ebpf-setup: run this as root" >&2
  exit 1
fi

modules="/lib/modules/$(uname -r)"

missing=()
[ -d /usr/lib/python3/dist-packages/bcc ] || missing+=(python3-bpfcc)
command -v cc >/dev/null || missing+=(gcc libc6-dev) # builds the stand-in libraries of the tests
if ! [ -e "$modules/build/include/generated/autoconf.h" ]; then
  # The running kernel's own headers where the distribution has them; else those of its current kernel, which is enough:
  # the probes read tracepoint arguments and registers, never a kernel struct.
  if apt-cache show "linux-headers-$(uname -r)" >/dev/null 2>&1; then
    missing+=("linux-headers-$(uname -r)")
  elif ! compgen -G '/usr/src/linux-headers-*-amd64' >/dev/null; then
    missing+=(linux-headers-amd64)
  fi
fi
if [ "${#missing[@]}" -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! [ -e "$modules/build/include/generated/autoconf.h" ]; then
  generated=$(compgen -G '/usr/src/linux-headers-*-amd64' | sort -V | tail -n 1)
  mkdir -p "$modules"
  ln -sfn "$generated" "$modules/build"
  ln -sfn "${generated%-amd64}-common" "$modules/source"
fi

# BCC opens the tracepoint formats below debugfs even where tracefs has a mount of its own.
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing

echo "ebpf-setup: ready (kernel $(uname -r), headers $(readlink -f "$modules/build"))"
