"""What happened: readers of snapshots and profiler traces, and the plain values that they yield. No torch here."""
