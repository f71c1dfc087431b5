#!/bin/bash
#SBATCH --job-name=small-abc234
#SBATCH --output=logs/job.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --dependency=singleton
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --partition=long
#SBATCH --account=physics
#SBATCH --constraint=fast&big
#SBATCH --gres=lustre:1,gpu:a100:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64000M
#SBATCH --time=60
#SBATCH --signal=B:USR1@60
# One job of a run: it trains until its time is nearly up, saves, and ends. Trainmaster submits the
# next one, which continues exactly; by hand: `cd` here and `sbatch job.sh`.
cd "$SLURM_SUBMIT_DIR" 2>/dev/null && test -f config.json || {
    echo "$(hostname) has no $SLURM_SUBMIT_DIR: login and compute nodes have to share it." >&2
    exit 66
}
mkdir -p logs
type module >/dev/null 2>&1 || . /etc/profile
module load cuda/12.4 || exit 67
module load python/3.11 || exit 67
exec "${TRAINMASTER_PYTHON:-python3}" -m trainer_runtime session .
