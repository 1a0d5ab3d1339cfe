# Steps of a gate on a device. `set -- STEP ARGUMENT...` goes before these lines, and both are the standard input of sh,
# so that the login shell parses no quotes. A step prints RS, as RFC 7464 has it, then one JSON document; what login
# files print comes before. A path may begin with `~/`.
umask 077

home() {
	case $1 in "~" | "~/"*) printf '%s\n' "$HOME${1#?}" ;; *) printf '%s\n' "$1" ;; esac
}

prefix() { # NAME PREFIX: that prefix, or the one that `install` uses for bundles of this name
	if [ -n "$2" ]; then home "$2"; elif [ "$(id -u)" = 0 ]; then echo "/opt/$1"; else echo "$HOME/.local/share/edgepack/$1"; fi
}

launcher() { # PREFIX
	for file in "$1"/bin/*; do
		if [ -x "$file" ]; then printf '%s\n' "$file" && break; fi
	done
}

json() {
	printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"
}

step=$1
shift
printf '\036'
case $step in
look)
	printf '{"system": %s, "machine": %s}\n' "$(json "$(uname -s)")" "$(json "$(uname -m)")"
	;;
installed) # NAME PREFIX
	prefix=$(prefix "$1" "$2")
	release=$(readlink "$prefix/current")
	launcher=$(launcher "$prefix")
	printf '{"prefix": %s, "release": %s, ' "$(json "$prefix")" "$(json "${release##*/}")"
	printf '"launcher": %s}\n' "$(json "$launcher")"
	;;
open) # KIB [FOLDER]: a private folder with so much room, below FOLDER
	needed=$1
	if [ $# = 2 ]; then set -- "$2"; else set -- "$TMPDIR" /var/tmp /tmp; fi
	for base; do
		if [ -z "$base" ]; then continue; fi
		base=$(cd "$(home "$base")" && pwd -P) || continue
		safe "$base" || { echo "another user may rename what is in $base" >&2; continue; }
		folder=$(mktemp -d "$base/edgepack-gate.XXXXXX") || continue
		free=$(df -Pk "$folder" | { read -r _; read -r _ _ _ free _; echo "$free"; })
		if [ "$free" -ge "$needed" ]; then
			# Empty files, because sftp's `reput` continues a file that exists.
			touch "$folder/bundle.edgepack" "$folder/rows.jsonl" || { rm -rf "$folder"; continue; }
			printf '{"folder": %s}\n' "$(json "$folder")"
			exit
		fi
		echo "$base has $((free / 1024)) MiB of the $(((needed + 1023) / 1024)) MiB that are needed" >&2
		rmdir "$folder"
	done
	exit 1
	;;
digest) # FILE
	printf '{"sha256": "%s"}\n' "$(sha256sum < "$1" | cut -c 1-64)"
	;;
verify) # FILE NAME PREFIX: by the installed release, with the trusted keys here
	prefix=$(prefix "$2" "$3")
	release=$(launcher "$prefix")
	if [ -L "$prefix/current" ] && [ -n "$release" ]; then exec "$release" verify --json "$1" </dev/null; fi
	for folder in /etc/edgepack "$prefix"; do
		for keys in trusted_signers revoked_keys; do
			case $(LC_ALL=C ls -d "$folder/$keys" 2>&1) in
			*"No such file or directory" | *"Not a directory") ;;
			*) echo "$folder has $keys, and no release in $prefix can check them" >&2; exit 8 ;;
			esac
		done
	done
	echo '{"installed": false}'
	;;
run) # FOLDER COMMAND...: `remove` ends it
	folder=$1
	shift
	TMPDIR=$folder "$@" </dev/null &
	echo $! > "$folder/pid" || kill $! # else nothing could end it
	wait $!
	code=$?
	true > "$folder/pid" # another process may get this number
	exit $code
	;;
remove) # FOLDER
	if read -r process < "$1/pid"; then
		kill "$process"
		seconds=0
		while kill -0 "$process" && [ $seconds -lt 10 ]; do sleep 1; seconds=$((seconds + 1)); done
		kill -9 "$process"
	fi 2>/dev/null
	rm -rf "$1"
	;;
esac
