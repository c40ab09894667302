package ring

import "testing"

// leaveState is a model of a producer that takes back what is unread (peer_return), or of a consumer that goes (renounce, refused), while
// the other end works. Bytes have numbers, so what the consumer gets is compared with what was written.
type leaveState struct {
	tail, head  uint8 // published indexes
	left, final bool
	gone        bool
	socket      [2]uint8 // the bytes of the stream in the socket: from, to

	p, own, saw uint8 // the producer, its tail, and what it has loaded
	c, at, got  uint8 // the consumer, its head; bytes that were taken
	old         uint8
	twice       bool // bytes that both the ring and the socket have
}

const (
	lBytes = 3

	lPut     = 0 // publish one byte, or leave
	lGone    = 1 // load gone
	lHead    = 2 // refused: load head
	lRefuse  = 3 // store tail with the index of before
	lMark    = 4 // peer_return: store TAIL_LEFT
	lLook    = 5 // load head
	lFinal   = 6 // store TAIL_FINAL with that
	lSend    = 7 // send(2)
	lRest    = 8 // of the stream by the socket
	lEnd     = 9
	kTake    = 0 // look at tail, and copy
	kHead    = 1 // store head
	kTail    = 2 // load tail
	kWait    = 3 // contested: for TAIL_FINAL
	kGo      = 4 // renounce: store gone
	kReturn  = 5 // is_returned
	kSocket  = 6
	kStopped = 7
)

// leaveProducer makes the next steps that are possible: it may leave at any time, if leaves.
func leaveProducer(s leaveState, leaves bool, broken string) (next []leaveState) {
	step := func(p uint8, change func(*leaveState)) {
		n := s
		n.p = p
		if change != nil {
			change(&n)
		}
		next = append(next, n)
	}
	switch s.p {
	case lPut:
		if s.own < lBytes {
			step(lGone, func(n *leaveState) { n.own++; n.tail = n.own })
		} else {
			step(lEnd, nil)
		}
		if leaves {
			step(lMark, nil)
		}
	case lGone:
		switch {
		case s.gone && broken != "gone unseen":
			step(lHead, nil)
		default:
			step(lPut, nil)
		}
	case lHead:
		if s.head == s.own-1 {
			step(lRefuse, nil)
		} else {
			step(lMark, nil)
		}
	case lRefuse:
		step(lRest, func(n *leaveState) {
			n.own--
			n.tail, n.left, n.final = n.own, true, true
			n.socket = [2]uint8{n.own, n.own}
		})
	case lMark:
		step(lLook, func(n *leaveState) { n.left = true })
		if broken == "head before mark" {
			next[0].p, next[0].left, next[0].saw = lFinal, false, s.head
		}
	case lLook:
		step(lFinal, func(n *leaveState) { n.saw = n.head })
	case lFinal:
		step(lSend, func(n *leaveState) { n.tail, n.left, n.final = n.saw, true, true })
	case lSend:
		step(lRest, func(n *leaveState) { n.socket = [2]uint8{n.saw, n.own} })
	case lRest:
		if s.socket[1] < lBytes {
			step(lRest, func(n *leaveState) { n.socket[1]++ })
		} else {
			step(lEnd, nil)
		}
	case lEnd: // a producer that is asked makes one more call, while the consumer waits for that
		if s.gone && !s.final && s.tail != s.head && s.c == kReturn {
			step(lMark, nil)
		}
	}
	return next
}

func leaveConsumer(s leaveState, goes bool, broken string) (next []leaveState) {
	step := func(c uint8, change func(*leaveState)) {
		n := s
		n.c = c
		if change != nil {
			change(&n)
		}
		next = append(next, n)
	}
	switch s.c {
	case kTake:
		switch {
		case s.left:
			if s.final {
				step(kSocket, nil)
			}
		case s.tail != s.at:
			step(kHead, func(n *leaveState) { n.old = n.at; n.got = n.tail })
		}
		if goes {
			step(kGo, nil)
		}
	case kHead:
		step(kTail, func(n *leaveState) { n.at, n.head = n.got, n.got })
	case kTail:
		switch {
		case s.left && broken != "not contested":
			step(kWait, nil)
		default:
			step(kTake, nil)
		}
	case kWait:
		if s.final {
			step(kSocket, func(n *leaveState) {
				if n.tail == n.old {
					n.at, n.head = n.old, n.old
				}
			})
		}
	case kGo:
		step(kReturn, func(n *leaveState) { n.gone = true })
	case kReturn:
		if s.final || s.tail == s.at {
			step(kSocket, nil)
		}
	case kSocket:
		if s.socket[1] > s.socket[0] {
			step(kSocket, func(n *leaveState) {
				n.twice = n.twice || n.socket[0] != n.at
				n.at, n.socket[0] = n.socket[1], n.socket[1]
			})
		}
	}
	return next
}

func leaveWrong(leaves, goes bool, broken string) *leaveState {
	seen := map[leaveState]bool{{}: true}
	for todo := []leaveState{{}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := append(leaveProducer(s, leaves, broken), leaveConsumer(s, goes, broken)...)
		if s.twice || len(next) == 0 && s.at != lBytes {
			return &s
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return nil
}

// TestLeaveModel: whatever end leaves the ring, and when, the consumer gets each byte once and in order.
func TestLeaveModel(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		for _, goes := range []bool{false, true} {
			if bad := leaveWrong(leaves, goes, ""); bad != nil {
				t.Errorf("leaves %v, goes %v: %+v", leaves, goes, *bad)
			}
		}
	}
	for _, broken := range []string{"head before mark", "not contested", "gone unseen"} {
		if leaveWrong(true, false, broken) == nil && leaveWrong(false, true, broken) == nil {
			t.Errorf("%s: nothing is found", broken)
		}
	}
}
