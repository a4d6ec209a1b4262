//go:build !race

package worker_test

// schedules is how many TestSchedules runs.
const schedules = 1000
