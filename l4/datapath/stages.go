package datapath

// The stages of a Handler, which would have more than 200 methods, where internal/layers allows a type 60. Each stage is the
// Handler with the methods of one part of its work, so that a call names the part that does it: h.evictor().forget(n). A stage
// has no state of its own. It is one pointer, made where it is called, and costs nothing.
type (
	// lookups finds the services, endpoints and connections of packets. In large tables it prefetches for a window of
	// packets, so that their cache misses overlap (prefetch.go).
	lookups struct{ *Handler }

	// tracker follows connections by the packets of both sides (flow.go, sequence.go, table.go).
	tracker struct{ *Handler }

	// selector selects the backend of a new connection (select.go).
	selector struct{ *Handler }

	// limiter holds clients to their limits (limit.go).
	limiter struct{ *Handler }

	// translator rewrites addresses and ports, and allocates source ports (nat.go, mss.go, ports.go).
	translator struct{ *Handler }

	// fragmenter sends packets in fragments that are larger than their way out (fragmenter.go).
	fragmenter struct{ *Handler }

	// tunneler encapsulates packets, and follows the paths to backends (encap.go, tunnel.go, tunnelerror.go).
	tunneler struct{ *Handler }

	// defragmenter finds the connections of fragments (fragment.go, held.go).
	defragmenter struct{ *Handler }

	// evictor makes room in a full table, and keeps closed connections (evict.go, timewait.go).
	evictor struct{ *Handler }

	// aborter ends connections ahead of their time, with resets to both ends (abort.go).
	aborter struct{ *Handler }

	// retirer reports the retired numbers that connections and ports still refer to (retire.go).
	retirer struct{ *Handler }

	// responder sends packets of the gateway itself: ICMP, resets, ARP and neighbour discovery (icmp.go, reject.go,
	// neighbor.go, generated.go).
	responder struct{ *Handler }

	// kernelSide enters connections in the kernel and takes them back (kernel.go, kernelenter.go).
	kernelSide struct{ *Handler }

	// syncSide exchanges connections with another gateway, and picks up those that it does not know (sync.go, pickup.go).
	syncSide struct{ *Handler }
)

func (h *Handler) lookups() lookups           { return lookups{h} }
func (h *Handler) tracker() tracker           { return tracker{h} }
func (h *Handler) selector() selector         { return selector{h} }
func (h *Handler) limiter() limiter           { return limiter{h} }
func (h *Handler) translator() translator     { return translator{h} }
func (h *Handler) fragmenter() fragmenter     { return fragmenter{h} }
func (h *Handler) tunneler() tunneler         { return tunneler{h} }
func (h *Handler) defragmenter() defragmenter { return defragmenter{h} }
func (h *Handler) evictor() evictor           { return evictor{h} }
func (h *Handler) aborter() aborter           { return aborter{h} }
func (h *Handler) retirer() retirer           { return retirer{h} }
func (h *Handler) responder() responder       { return responder{h} }
func (h *Handler) kernelSide() kernelSide     { return kernelSide{h} }
func (h *Handler) syncSide() syncSide         { return syncSide{h} }
