package datapath

// halfOpenTable are the half-open connections of a table in the order they were opened: all of them, and
// those of each pair of SNAT address and endpoint for itself, so that the oldest that holds a
// port can give it up. They stand beside the connections, since only few are half-open at a time,
// and those that follow each other in age mostly lie together.
type halfOpenTable struct {
	slots []halfOpenSlot // slot 0 is none
	all   queue
	free  uint32 // first of the free slots below high, linked as newer by age; 0 is none
	high  uint32 // slots from here on have never been used
	n     int
}

// halfOpenSlot is one connection's place in the two queues: 32 bytes, so that none lies on two cache lines.
type halfOpenSlot struct {
	conn   uint32
	hashes hashes // with them its slots in the index are found without the connection
	links  [2]link
	_      uint32
}

// link names the neighbours in a queue; 0 is none.
type link struct{ older, newer uint32 }

// The queues that a half-open connection stands in.
const (
	byAge  = iota
	byPair // of the SNAT address and endpoint; connections with clients' own addresses have none
)

// queue is the ends of a list of half-open connections; both are 0 when it is empty.
type queue struct{ oldest, newest uint32 }

// full reports whether the budget is used up.
func (h *halfOpenTable) full() bool { return h.n == len(h.slots)-1 }

// push enters a connection as the newest, in the queue of its pair too if it has one, and returns
// its slot. There is room.
func (h *halfOpenTable) push(conn uint32, hashes hashes, pair *queue) uint32 {
	s := h.free
	if s != 0 {
		h.free = h.slots[s].links[byAge].newer
	} else {
		s = h.high
		h.high++
	}
	h.slots[s] = halfOpenSlot{conn: conn, hashes: hashes}
	h.join(&h.all, byAge, s)
	if pair != nil {
		h.join(pair, byPair, s)
	}
	h.n++
	return s
}

// remove takes slot s out of the queues that push entered it in.
func (h *halfOpenTable) remove(s uint32, pair *queue) {
	h.leave(&h.all, byAge, s)
	if pair != nil {
		h.leave(pair, byPair, s)
	}
	h.slots[s] = halfOpenSlot{links: [2]link{{newer: h.free}, {}}}
	h.free = s
	h.n--
}

func (h *halfOpenTable) join(q *queue, by int, s uint32) {
	h.slots[s].links[by].older = q.newest
	if q.newest != 0 {
		h.slots[q.newest].links[by].newer = s
	} else {
		q.oldest = s
	}
	q.newest = s
}

func (h *halfOpenTable) leave(q *queue, by int, s uint32) {
	l := h.slots[s].links[by]
	if l.older != 0 {
		h.slots[l.older].links[by].newer = l.newer
	} else {
		q.oldest = l.newer
	}
	if l.newer != 0 {
		h.slots[l.newer].links[by].older = l.older
	} else {
		q.newest = l.older
	}
}
