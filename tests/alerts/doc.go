// Package alerts evaluates the alert rules of deploy/prometheus over time, with Prometheus' own query engine: each fires on
// the series of its fault, and none on those of a healthy fleet. Start reading at alerts_test.go.
package alerts
