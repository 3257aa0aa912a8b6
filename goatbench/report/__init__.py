"""The report: one HTML page that opens offline, from the same boards as the leaderboard. No torch, no script or font of others."""
