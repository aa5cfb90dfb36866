"""Jobs on a real Slurm."""
