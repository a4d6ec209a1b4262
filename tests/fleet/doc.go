// Package fleet holds what takes several workers, one NATS server over the network and one store: who has a job when the
// network parts, who computes a shared prefix, and what the way through the queue costs. Start reading at fleet_test.go.
package fleet
