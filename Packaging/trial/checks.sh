# Functions of the trials, which are sourced. Each check prints one line that begins with "ok" or "not ok".
# shellcheck shell=sh

# check NAME FUNCTION...: the check passes if each command of the function succeeds. Their output is shown otherwise.
check() {
    name=$1
    shift
    # A condition would disable -e in the function.
    set +e
    (
        set -e
        "$@"
    ) >/tmp/check.log 2>&1
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        echo "ok $name"
    else
        echo "not ok $name"
        tail -n 30 /tmp/check.log | sed 's/^/    /'
    fi
}

# eventually COMMAND...: repeats the command for up to 30 s, until it succeeds.
eventually() {
    tries=300
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

# notes STORE COUNT: the store has so many notes.
notes() {
    [ "$(sqlite3 "$1" "SELECT count(*) FROM note")" = "$2" ]
}
