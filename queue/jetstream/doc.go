// Package jetstream implements queue.Queue on NATS JetStream, and runs the server inside this process where no
// other is to be had. It is the only package that knows NATS.
//
// Where things are (topology.go has the settings):
//
//	stream LECTOR_JOBS     lector.jobs.<ingest|resume>.<model>.<priority>   one message a job, gone when settled
//	stream LECTOR_EVENTS   lector.events.<job>                              the story of a job
//	stream LECTOR_HANDLES  lector.handles.<job>                             one message a job, the first that came
//	stream LECTOR_DEAD     lector.dead.<job>                                the last dead letter of a job
//	bucket lector_jobs     <job>                                            record: status, attempts, claim
//	                       queue.pause                                      why nothing is handed out
//	                       queue.quotas, queue.tokens.<tenant>              what tenants may have, what they had today and have open
//	bucket lector_leases   <name>                                           who holds what until when
//	                       running.<tenant>.<n>                             a place of those that a quota gives
//	subject lector.bell.>  wakes those who wait; losing a ring costs at most Config.Poll
//
// What it promises, beside what package queue does:
//
//  1. One message stands for a job: its sequence is in the record. Any other message with that job's id is
//     acknowledged without being handed out.
//  2. One delivery stands for a job: its claim is in the record, written by compare-and-set. The server accepts
//     acknowledgements that come too late, so every settlement is checked against the claim first.
//  3. Attempts are counted in the record, never by the server: redelivery has no limit of its own.
//  4. Settlements are confirmed by the server before they return.
//  5. Every call ends when its context does, with an error that is the context's; a call whose context has no
//     end gets no answer for at most Config.Timeout. Next and Follow wait as long as their context.
//  6. A connection that breaks is made again for as long as the queue lives. Calls wait for it, at most AckWait; nothing
//     that was to be said before is sent after it.
//  7. What is decided by the time, leases and deadlines and days, is decided by the server's clock.
//  8. A new owner of a folder finds no leases and no deliveries of the one before: every unfinished job is due.
//
// It refuses streams that exist with settings that would break a promise, messages beyond the server's limit, and
// to open a folder's store without the folder's lock: the server itself takes none, and two would damage it.
//
// A Queue and a Server may be used from any goroutine; a Delivery and a Lease too, one call at a time.
//
// Start reading at Queue, then at record.
package jetstream
