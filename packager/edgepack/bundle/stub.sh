#!/bin/sh
# coding: file-damaged-or-Python-older-than-3.8
# @TITLE@
# `sh FILE --help` lists the verbs. These lines unpack the interpreter that follows them, and start it on this file.
# A Python that finds no zip in the file takes it for a program: line 2 is what it then complains about.
# A shell reads the braces to their end before it runs a line: a file that ends inside them is an error, not a success.
{
set +eu
unset CDPATH GZIP TAR_OPTIONS PYTHONEXECUTABLE __PYVENV_LAUNCHER__
# An empty or relative entry means the working directory, which may be on a stick: no program of it is run.
case $PATH in '' | [!/]* | *: | *:[!/]*) PATH=/usr/bin:/bin ;; esac
file=$0
# Messages do not name the file: its name may hold control characters.
# What, why, fix, exit code.
fail() {
	echo "error: $1" >&2
	echo "  why: $2" >&2
	echo "  fix: $3" >&2
	exit "$4"
}
[ -f "$file" ] && [ -r "$file" ] || fail "this program cannot be read" "it is not a file" "sh FILE VERB" 2
case $file in -*) file=./$file ;; esac
# The last bytes are text. Of a file cut short they are not, and Python would take it for a program. (bash warns of zeros.)
if [ -n "$(command -v tail)" ]; then
	{ end=$(tail -c @END_BYTES@ "$file"); } 2>&-
	case $end in @END@*) ;; *) fail "this file is damaged" "its end is missing" "copy it again" 8 ;; esac
fi
machine=$(uname -m 2>&-) || fail "this system lacks uname" "it names the machine" "install busybox" 4
case $machine in
@CASES@
*) offset= ;;
esac
if [ -z "$offset" ]; then
	if python=$(command -v python3); then
		"$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" || fail "$python is too old" \
			"it is older than 3.8" "install a newer one, and type: python3.8 FILE VERB" 4
		exec "$python" -I -S "$file" "$@"
	fi
	fail "there is no interpreter" "this file carries @CARRIED@, this is $machine, and there is no python3" \
		"install Python 3.8 or newer, or build the file @OTHERWISE@" 4
fi
missing= why= dir= said= n= line_end='
'
for tool in tail head gzip tar mktemp rm ls id; do
	[ -n "$(command -v $tool)" ] || missing="$missing $tool"
done
[ -z "$missing" ] || fail "this system lacks$missing" "this file needs it" \
	"install busybox, or type: python3 FILE VERB" 4
packed() { tail -c +$offset "$file" | head -c $size; }
# One folder, and why.
refused() {
	why="$why${why:+; }$1: $2"
	return 1
}
# Sets n to a descriptor that is not in use: the caller may hold a lock by one. With too few descriptors bash prints
# errors, so that nothing is captured here.
unused() {
	for n in 9 8 7 6 5 4 3; do (: >&$n) 2>&- || return 0; done
	n=
	return 1
}
@SAFE@
# Removes the folder once. Whoever waits for its end is not to remove the name again: another user may have it by then.
drop() {
	rm -rf "$dir"
	[ -z "$n" ] || eval "echo >&$n" 2>&-
	dir=
}
# Into a new folder below $1, which only this user can enter. It must be able to run from there, so it is tried.
unpack() {
	umask 077
	base=$(cd "$1" 2>&- && pwd -P) || { refused "$1" "it cannot be entered"; return; }
	safe "$base" || { refused "$1" "others may rename what is in it"; return; }
	case $base in *[:\;\$]*) refused "$1" "the loader would split this name"; return ;; esac
	base=${base%/}/@NAME@
	# Never a folder of somebody else.
	trap 'case $dir in "$base".*) drop ;; esac' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	dir=$(mktemp -d "$base.XXXXXX" 2>&-) || { refused "$1" "it cannot be written"; return; }
	# The process that removes the folder when it ends: Python, in place of this shell.
	echo $$ >"$dir/.edgepack-once"
	# After a SIGKILL it cannot. Whoever reads from a pipe that it holds open learns of its end. Without /dev/null there
	# are no background jobs, and none outlives process 1 of a container: Python then has a child of its own for this.
	if [ $$ -ne 1 ] && [ -c /dev/null ] && unused && mkfifo "$dir/fifo" 2>&-; then
		eval "exec $n<>\"\$dir/fifo\""
		eval "(trap '' INT TERM HUP; cd /; read -r end || rm -rf \"\$dir\") <\"\$dir/fifo\" $n>&- >/dev/null 2>&1 &"
	fi
	# tar takes an archive with a wrong checksum, and a pipe ends as its last program does: gzip leaves a mark.
	said=$({ { packed | gzip -dc || [ $? -ne 1 ] || : >"$dir/bad"; } | tar -xf - -C "$dir"; } 2>&1) &&
		[ ! -e "$dir/bad" ] && said=$("$dir/bin/python3" -I -S -c "" 2>&1) && return
	drop
	# GNU tar says so of each file.
	case $said in *"No space left"*) said="no space left" ;; esac
	refused "$1" "${said%%"$line_end"*}"
}
mask=$(umask)
if [ -n "$TMPDIR" ]; then unpack "$TMPDIR"; else unpack /tmp || unpack /var/tmp || unpack /dev/shm; fi || {
	packed | gzip -t 2>&- || fail "this file is damaged" "its interpreter cannot be unpacked" "copy it again" 8
	fail "the interpreter cannot be unpacked and started" "$why" \
		"set TMPDIR to a folder of your own with 30 MB free, not mounted noexec" 4
}
umask "$mask"
trap - EXIT TERM HUP
# Until Python can answer.
trap '' INT
exec "$dir/bin/python3" -I -S -B -X utf8 "$file" "$@"
exit 4
}
