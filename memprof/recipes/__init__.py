"""Training runs that can be recorded; each builds model, optimizer, batches and step, and is one small file."""
