"""Federations from Python: submit a job with the admin's kit, follow it, cancel it, and see who is there.

import evenhand.federation

with evenhand.federation.connect("kits/admin") as federation:
    submission = federation.submit("job.toml")
    outcome = submission.wait()
    print(outcome.run, outcome.result["quality"])
"""

from evenhand.jobs.federation.client import Federation, JobOutcome, Submission, connect

__all__ = ["Federation", "JobOutcome", "Submission", "connect"]
