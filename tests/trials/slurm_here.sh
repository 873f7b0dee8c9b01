#!/usr/bin/env bash
# SLURM on this machine alone, as root on Debian: one node with all cores and a gres of two accelerators that are none.
#   apt-get install -y slurm-wlm munge && tests/trials/slurm_here.sh && sinfo
set -euo pipefail
host=$(hostname -s)
cores=$(nproc)
memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
mkdir -p /etc/slurm /run/munge /var/log/munge /var/spool/slurmctld /var/spool/slurmd
[ -s /etc/munge/munge.key ] || dd if=/dev/urandom of=/etc/munge/munge.key bs=1 count=1024 status=none
chown -R munge:munge /etc/munge /run/munge /var/log/munge /var/lib/munge
chmod 400 /etc/munge/munge.key
pgrep -x munged > /dev/null || runuser -u munge -- munged
cat > /etc/slurm/slurm.conf <<CONF
ClusterName=here
SlurmctldHost=$host
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
KillWait=5
MaxArraySize=2001
GresTypes=accelerator
NodeName=$host CPUs=$cores RealMemory=$memory Gres=accelerator:2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
echo "NodeName=$host Name=accelerator Count=2" > /etc/slurm/gres.conf
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' > /etc/slurm/cgroup.conf
pgrep -x slurmctld > /dev/null || slurmctld
pgrep -x slurmd > /dev/null || slurmd
for _ in $(seq 30); do
    sinfo -h -o %T | grep idle && exit 0
    scontrol update nodename="$host" state=resume 2> /dev/null || true
    sleep 1
done
tail -5 /var/log/slurmctld.log /var/log/slurmd.log
exit 1
