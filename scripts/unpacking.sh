# Debian packages that are unpacked below the build and not installed; to be sourced by bash.
# They are large, and only tests and benchmarks with real clusters and buckets want them.

origins=${TARGET:-$(dirname "${BASH_SOURCE[0]}")/../target}/origins
root=

# Says why something cannot be had. Tests take this status for a reason to leave themselves out.
cannot() {
    echo "${0##*/}: $*" >&2
    exit 3
}

# The packages that apt would install for those named.
packages_for() {
    local plan
    plan=$(apt-get -s install --no-install-recommends "$@" 2>/dev/null) || return 1
    awk '/^Inst/ { print $2 }' <<<"$plan"
}

download() {
    # Nothing is missing where all is installed.
    [ $# -eq 0 ] || apt-get download -qq "$@" 2>/dev/null
}

# Unpacks packages, and what they need beyond what is installed, once; their directory is in $root.
unpack() {
    local name=$1 lock new package packages
    shift
    mkdir -p "$origins"
    root=$(cd "$origins" && pwd)/$name
    [ ! -d "$root" ] || return 0
    exec {lock}>"$root.lock"
    flock "$lock"
    if [ ! -d "$root" ]; then
        command -v apt-get >/dev/null || cannot "no apt-get, which would bring $*"
        new=$(mktemp -d "$root.XXXXXX")
        mkdir "$new/packages" "$new/root"
        if ! { packages=$(packages_for "$@") && (cd "$new/packages" && download $packages); }; then
            # As in a fresh container, or with lists that are too old.
            [ "$(id -u)" -ne 0 ] || apt-get update -qq >/dev/null 2>&1 || true
            packages=$(packages_for "$@") || { rm -r "$new"; cannot "apt knows no packages $*"; }
            (cd "$new/packages" && download $packages) || { rm -r "$new"; cannot "apt cannot download $*"; }
        fi
        for package in "$new"/packages/*.deb; do
            [ ! -e "$package" ] || dpkg-deb --fsys-tarfile "$package" |
                tar -x -C "$new/root" --exclude=./usr/share/doc --exclude=./usr/share/man
        done
        chmod 755 "$new/root"
        mv "$new/root" "$root"
        rm -r "$new"
    fi
    exec {lock}>&-
}

# Has programs find what was unpacked.
use_unpacked() {
    local path libraries=
    for path in "$root"/{usr/,}lib/*-linux-gnu*; do
        [ ! -d "$path" ] || libraries+=$path:$path/ceph:
    done
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-}
    export PATH=$root/usr/bin:$PATH
    export PYTHONPATH=$root/usr/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1
}

# The directory $1 below the libraries of the machine's architecture, as unpacked or as installed.
library_directory() {
    local path
    for path in "$root"/usr/lib/*-linux-gnu*/"$1" /usr/lib/*-linux-gnu*/"$1"; do
        [ ! -d "$path" ] || { echo "$path"; return; }
    done
    echo "${0##*/}: no directory $1 of libraries" >&2
    return 1
}
