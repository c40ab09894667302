// Package collective is all-reduce and its family between processes: operations that all ranks of a group call together, and whose
// algorithm is chosen for each size by measured costs.
//
//	c, err := collective.Connect(ctx, collective.Config{Rank: rank, Size: 8, Address: "10.0.0.1:7400", Key: key})
//	grad := collective.Slice(gradient)                   // a []float32
//	err = c.AllReduce(grad, grad, collective.Avg)        // in place
//	h := c.AllReduceAsync(grad, grad, collective.Sum)    // and beside computation
//	err = h.Wait()
//
// Rank 0 listens on the address, and the others connect to it: they prove that they have the key, learn the addresses of all, and
// connect to each other. Local makes all ranks within one process.
//
// # Who does what
//
// Package schedule generates the steps of each algorithm, numeric reduces, link carries messages over the connections to one peer.
// This package joins them: the operations, the choice between algorithms, the rendezvous, and what happens when a rank fails.
//
// # Order
//
// All ranks call the same collective operations of a communicator in the same order, with the same types and counts. Operations of a
// communicator are executed one after the other; those of different communicators (Split) and single messages (Send) at a time.
//
// # Failures
//
// A rank that dies, hangs or differs in what it calls makes every call of every other rank end with an Error, which names it, within
// the time-out and at most two seconds more. The communicator is unusable then; Shrink makes one of the ranks that are left.
package collective
