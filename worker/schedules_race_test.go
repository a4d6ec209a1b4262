//go:build race

package worker_test

// schedules is how many TestSchedules runs: the race detector makes each ten times as slow.
const schedules = 40
