#!/usr/bin/env bash
# Fills the build context of a Containerfile: the file itself, the program, and what else is copied, from Debian packages of
# this machine.
# Usage: context.sh CONTAINERFILE PROGRAM CONTEXT
set -euo pipefail
export LC_ALL=C
umask 022
containerfile=$1 program=$2 context=$3

copies() { grep -q "^COPY .*$1 /" "$containerfile"; }

if ldd "$program" 2>/dev/null | grep -F '=>' >&2; then
    echo "expected a static program, $program needs these libraries" >&2
    exit 1
fi
rm -rf "$context"
mkdir -p "$context"
install -m 644 "$containerfile" "$context"
install -m 755 "$program" "$context"

# The kubelet reads only the user from the image. containerd looks up its group in /etc/passwd, and falls back to root's.
if copies passwd; then
    echo 'lucid:x:65532:65532::/:/sbin/nologin' >"$context/passwd"
fi

if copies ca-certificates.crt; then
    # /etc/ssl/certs may include CAs added by the administrator of this machine.
    dpkg-query --listfiles ca-certificates | grep '^/usr/share/ca-certificates/.*\.crt$' | sort |
        xargs cat >"$context/ca-certificates.crt"
fi

if copies network-tools; then
    root=$context/network-tools
    programs=$(printf '%s\n' /usr/sbin/{nft,{ip,ip6}tables-{nft,legacy}-{restore,save}})
    # iptables loads its matches and targets by name. All of the package are included, to read rules of other programs.
    extensions=$(dpkg-query --listfiles iptables | grep -E '/xtables/lib(xt|ipt|ip6t)_')
    # Word splitting is intended here and below: no path has spaces.
    libraries=$(ldd $programs $extensions)
    if grep -F 'not found' <<<"$libraries" >&2; then exit 1; fi
    libraries=$(sed -nE 's|.*\s(/\S+) \(0x.*|\1|p' <<<"$libraries" | sed 's|^/lib|/usr/lib|' | sort -u)

    files="$programs $extensions $libraries /etc/os-release"
    mkdir -p "$root"/{etc,usr/lib,usr/lib64,var/lib/dpkg/status.d}
    ln -s usr/lib usr/lib64 "$root"
    # Links come with their targets.
    { realpath --no-symlinks --relative-to / $files; realpath --relative-to / $files; } | sort -u |
        tar --create --directory / --files-from - | tar --extract --directory "$root"
    # Without this file, each uid in a rule would be looked up in services that the image lacks.
    printf '%s: files\n' passwd group >"$root/etc/nsswitch.conf"

    # Vulnerability scanners read the packages of an image without a package manager from status.d. dpkg records some files by
    # their path from before /lib became a link to /usr/lib.
    files=$(realpath $programs $libraries)
    owners=$(dpkg-query --search $files ${files//\/usr\//\/} 2>/dev/null | grep -v diversion) || true
    for file in $files; do
        grep -E --max-count 1 ": (/usr)?${file#/usr}$" <<<"$owners" || { echo "$file belongs to no package" >&2; exit 1; }
    done | sed 's/: .*//' | sort -u | while read -r package; do
        name=${package%%:*}
        dpkg-query --status "$package" >"$root/var/lib/dpkg/status.d/$name"
        install -D -m 644 "/usr/share/doc/$name/copyright" "$root/usr/share/doc/$name/copyright"
    done
fi
