package monitor

// Values of labels that are ours to name; the others are queue.Kind, queue.State and the classes of worker.Fate.
const (
	computed  = "computed" // tokens
	restored  = "restored"
	deduped   = "deduped"
	generated = "generated"

	hit  = "hit" // lookups
	miss = "miss"

	accepted = "accepted" // drafts
	rejected = "rejected"

	delivery = "delivery" // leases
	claim    = "claim"

	waiting = "waiting" // jobs in the queue
	taken   = "taken"
)

// chunkParts are where the seconds of a chunk go; they add up to its whole.
func chunkParts() []string {
	return []string{"delta", "attention", "experts", "mtp", "ngram", "other"}
}

// uploadParts are how chunks came into the store.
func uploadParts() []string { return []string{"held", "behind"} }

// ingestParts are where the seconds of an ingest go; they add up to its whole.
func ingestParts() []string { return []string{"wait", "restore", "prefill", "store", "other"} }
