package transport

// MaxSGE is the number of elements that a list may have.
const MaxSGE = 16

// RecvQueue holds posted receives: of one queue pair, or shared by several (SRQ, 10.2.9). It belongs to the goroutine that its queue
// pairs belong to.
type RecvQueue struct {
	ring   []recv // a power of two
	head   uint32 // the oldest
	tail   uint32 // behind the newest
	depth  uint32
	shared bool

	limit    uint32 // reached is called when fewer are left; 0: not armed
	reached  func()
	onPosted func() // of the queue pair: credits have grown
}

// recv is a posted receive.
type recv struct {
	id    uint64
	list  [MaxSGE]SGE
	n     uint8 // elements of list
	total uint32
}

// NewRecvQueue returns a queue of depth receives. A shared one can be given to several queue pairs; reached is called when
// its limit is, and may be nil.
func NewRecvQueue(depth int, shared bool, reached func()) *RecvQueue {
	return &RecvQueue{ring: make([]recv, ringSize(depth, 0)), depth: uint32(depth), shared: shared, reached: reached}
}

// Len returns the number of receives that are posted and free.
func (r *RecvQueue) Len() int { return int(r.tail - r.head) }

// SetLimit arms the limit event: it happens once, when fewer than n receives are left.
func (r *RecvQueue) SetLimit(n int) {
	r.limit = uint32(n)
	r.checkLimit()
}

// Post appends a receive.
func (r *RecvQueue) Post(w *RecvWR) error {
	if len(w.List) > MaxSGE {
		return ErrRequest
	}
	if r.tail-r.head == r.depth {
		return ErrQueueFull
	}
	if r.tail-r.head == uint32(len(r.ring)) {
		r.grow()
	}
	e := &r.ring[r.tail&uint32(len(r.ring)-1)]
	e.id, e.n, e.total = w.ID, uint8(copy(e.list[:], w.List)), 0
	for _, s := range w.List {
		if s.Length > maxMessage-e.total {
			return ErrRequest
		}
		e.total += s.Length
	}
	r.tail++
	if r.onPosted != nil {
		r.onPosted()
	}
	return nil
}

// grow makes room in a ring that is full and smaller than its depth.
func (r *RecvQueue) grow() {
	old := r.ring
	r.ring = make([]recv, ringSize(int(r.depth), len(old)))
	for i := r.head; i != r.tail; i++ {
		r.ring[i&uint32(len(r.ring)-1)] = old[i&uint32(len(old)-1)]
	}
}

// take removes the oldest receive into e.
func (r *RecvQueue) take(e *recv) bool {
	if r.tail == r.head {
		return false
	}
	*e = r.ring[r.head&uint32(len(r.ring)-1)]
	r.head++
	r.checkLimit()
	return true
}

// oldest borrows the receive that take returns next; nil is none.
func (r *RecvQueue) oldest() *recv {
	if r.tail == r.head {
		return nil
	}
	return &r.ring[r.head&uint32(len(r.ring)-1)]
}

func (r *RecvQueue) checkLimit() {
	if r.limit > 0 && r.tail-r.head < r.limit {
		r.limit = 0
		if r.reached != nil {
			r.reached()
		}
	}
}

// maxMessage is the longest message: 2^31 bytes (9.7.7.1.1).
const maxMessage = 1 << 31
