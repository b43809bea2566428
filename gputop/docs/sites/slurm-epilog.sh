#!/bin/sh
# Slurm epilog: leaves the diagnosis of a job in the folder in which it ran, as gputop-JOB-HOST.md.
#
# Install: gputop docs sites/slurm-epilog.sh > /etc/slurm/epilog.d/50-gputop.sh; chmod 755 it; in slurm.conf
#   Epilog=/etc/slurm/epilog.d/*
# It reads the recordings of gputop-record.service. Jobs without a process on a GPU get no report.
#
# It cannot fail or hold up the epilog: its exit code is always 0, and after the deadline it ends whatever hangs,
# such as a home directory on a dead server. The report is made by the owner of the recordings and written by the
# owner of the job, so a link in the user's folder leads nowhere else.

PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin # slurmd sets none
export PATH
GPUTOP=${GPUTOP_COMMAND:-gputop}
RECORDINGS=${GPUTOP_RECORDINGS:-/var/log/gputop}
DEADLINE_S=${GPUTOP_DEADLINE_S:-20}
HOME=/ XDG_CONFIG_HOME=/etc # settings: /etc/gputop/config.toml
export HOME XDG_CONFIG_HOME

# Runs a command as another user if this is root, else as it is.
as() {
    uid=$1 gid=$2
    shift 2
    if [ "$(id -u)" -ne 0 ] || [ "$uid" = 0 ]; then
        "$@"
    elif id -nu "$uid" >/dev/null 2>&1; then
        setpriv --reuid="$uid" --regid="$gid" --init-groups -- "$@"
    else
        setpriv --reuid="$uid" --regid="$gid" --clear-groups -- "$@"
    fi
}

# The two newest recordings: the job may have ended just after a new file was begun.
newest() {
    before='' last=''
    for file in "$RECORDINGS"/*.jsonl.gz; do # their names are times, so the last ones are the newest
        [ -f "$file" ] && before=$last last=$file
    done
    [ -n "$before" ] && cat "$before"
    [ -n "$last" ] && cat "$last"
}

# Everything that takes time; it runs under the deadline. $1: a temporary file.
report() {
    owner=$(stat -c %u "$RECORDINGS") group=$(stat -c %g "$RECORDINGS")
    sluid=${SLURM_JOB_SLUID:+--slurm-job=$SLURM_JOB_SLUID}
    newest | as "$owner" "$group" "$GPUTOP" --readonly diagnose --source - \
        --slurm-job="$SLURM_JOB_ID" ${sluid:+"$sluid"} --format md >"$1" 2>/dev/null
    [ -s "$1" ] || return
    # shellcheck disable=SC2016 # its arguments, not ours; -C: never over a file that is there
    as "$SLURM_JOB_UID" "${SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID")}" \
        sh -c 'cd "$1" && umask 077 && set -C && cat > "$2"' sh \
        "$SLURM_JOB_WORK_DIR" "gputop-$SLURM_JOB_ID-$(uname -n).md" <"$1"
}

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_UID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_WORK_DIR in /*) ;; *) exit 0 ;; esac
case $DEADLINE_S in '' | *[!0-9]*) exit 0 ;; esac

if [ "$1" = report ]; then
    report "$2"
    exit 0
fi

exec 2>/dev/null # some shells report a process that was killed
made=$(mktemp) || exit 0
# KILL, and at once, for all of its process group: after another signal one of them might outlive the others
timeout -s KILL "$DEADLINE_S" /bin/sh "$0" report "$made" </dev/null >/dev/null 2>&1 &
worker=$!
looks=$(((DEADLINE_S + 2) * 5))
# not `wait`: a process that hangs in the kernel does not even end by SIGKILL
while [ "$looks" -gt 0 ] && kill -0 "$worker" 2>/dev/null; do
    sleep 0.2
    looks=$((looks - 1))
done
rm -f "$made"
exit 0
