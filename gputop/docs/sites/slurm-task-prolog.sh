#!/bin/sh
# Slurm task prolog: lets gputop measure the steps of every Python training and trace it while it runs.
#
# Install: gputop docs sites/slurm-task-prolog.sh > /etc/slurm/gputop-task-prolog.sh; chmod 755 it; in slurm.conf
#   TaskProlog=/etc/slurm/gputop-task-prolog.sh
# It adds one folder to PYTHONPATH of the task, as `gputop env` does for a shell. A user leaves it out with
#   export GPUTOP_TASK_PROLOG=0
#
# It runs as the user before each task, and cannot fail: without an answer within five seconds it changes nothing.

PATH=/usr/local/bin:/usr/bin:/bin
export PATH
GPUTOP=${GPUTOP_COMMAND:-gputop}

[ "$GPUTOP_TASK_PROLOG" = 0 ] && exit 0
before=$PYTHONPATH
lines=$(timeout -k 1 5 "$GPUTOP" env 2>/dev/null </dev/null) || exit 0
eval "$lines" # export PYTHONPATH="FOLDER${PYTHONPATH:+:$PYTHONPATH}"
case ":$before:" in *":${PYTHONPATH%%:*}:"*) exit 0 ;; esac # it is there already
case $PYTHONPATH in *'
'*) exit 0 ;; esac # it cannot be said in one line
echo "export PYTHONPATH=$PYTHONPATH"
exit 0
