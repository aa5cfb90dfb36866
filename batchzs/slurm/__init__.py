"""What batchzs says to Slurm: scripts and arrays, the time that is left, the day it began with, another turn."""
