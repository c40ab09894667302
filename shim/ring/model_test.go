package ring

import "testing"

// A model of one direction of a ring between two programs: the steps of ringread.c, ringwrite.c and ringdoorbell.c, each of which touches
// shared memory, futex(2) or the socket once, in all orders that two threads can make of them. What is asked: a consumer that
// waits for ever has read all, and one that has read all finds no doorbell byte that it cannot account for.

// Steps of the producer (publish, ring_announce).
const (
	pPublish = iota
	pArm     // load arm
	pHead    // load head, and decide
	pNotify  // store notified: pending, or the answer
	pCheck   // load head
	pCancel  // store notified as it was
	pCommit  // store the answer, and count the byte
	pWake    // futex(2)
	pByte    // send(2)
	pDone
)

// Steps of the consumer (rings_receive).
const (
	cTake    = iota // look at tail, and free what is taken
	cAgain          // is the ring empty?
	cLoad           // ring_arm: load notified
	cArm            // store arm
	cCount          // load notified
	cLook           // look at tail once more
	cPending        // there is something, and a byte that announces it?
	cDisarm         // store arm
	cDrain          // take as many doorbell bytes as were counted
	cYield          // is one on its way?
	cLate           // load notified: too late
	cReturn         // of read(2)
	cLie            // ring_lie_down: load notified
	cSleepy         // store arm
	cSaw            // load notified
	cCheck          // look at tail, before
	cFutex          // futex(2)
	cAsleep         // in it
	cUp             // get_up: load notified
	cUp2            // store arm
	cWait           // until the socket is readable: recv(MSG_PEEK), poll(2), or an edge of epoll(7)
	cStale          // it is, and the ring is empty?
	cExplain        // is there a byte that was counted?
	cTakeOne        // one that was not
)

type modelArm struct{ state, epoch, want uint8 }

type modelNotified struct{ answer, epoch, count uint8 }

// modelState is all that the two threads and the kernel have.
type modelState struct {
	tail, head, sock, taken uint8
	arm                     modelArm
	notified                modelNotified
	edge                    bool

	p            uint8
	pArm         modelArm
	pBefore      modelNotified
	pUsed, pLeft uint8 // messages to come
	pFutex       bool
	pSend        bool

	c      uint8
	saw    modelNotified
	count  uint8 // doorbell bytes that were counted and not taken
	done   uint8 // bytes of this read
	rested bool
	late   bool  // a sleep that only time has ended
	back   uint8 // where drain_doorbells returns to
	waited uint8 // times
}

// A model is how the program reads, and what is wrong with the protocol.
type model struct {
	message, messages, want uint8
	blocking, edges         bool
	broken                  string
}

const modelEpochs = 4

func (m *model) total() uint8 { return m.message * m.messages }

func answer(a modelArm, n modelNotified) uint8 {
	if a.epoch != n.epoch {
		return answerNone
	}
	return n.answer
}

// producer makes one step. ok is that it could.
func (m *model) producer(s modelState) (modelState, bool) {
	switch s.p {
	case pPublish:
		if s.pLeft == 0 {
			s.p = pDone
			return s, true
		}
		s.pLeft--
		s.tail += m.message
		s.p = pArm
		if m.broken == "arm before tail" { // it has been loaded before
			s.p = pHead
		}
	case pArm:
		s.pArm, s.p = s.arm, pHead
	case pHead:
		s.pUsed = s.tail - s.head
		s.p = m.decide(&s)
	case pNotify:
		s.pBefore = s.notified
		s.notified.epoch, s.notified.answer = s.pArm.epoch, answerWoken
		s.p = pWake
		if s.pSend {
			s.notified.answer, s.p = answerPending, pCheck
		}
		if s.pSend && m.broken == "no check of the head" {
			s.p = pCommit
		}
		if s.pSend && m.broken == "count at once" {
			s.notified.count++
		}
	case pCheck:
		s.p = pCommit
		if s.head == s.tail {
			s.p = pCancel
		}
	case pCancel:
		s.notified = s.pBefore
		s.p = pPublish
	case pCommit:
		s.notified.answer = answerNotified
		if m.broken != "count at once" {
			s.notified.count++
		}
		s.p = pByte
		if s.pFutex {
			s.p = pWake
		}
	case pWake:
		if s.c == cAsleep && m.broken != "no wake" {
			s.c = cUp
		}
		s.p = pByte
	case pByte:
		if s.pSend {
			s.sock++
			s.edge = true
		}
		s.p = pPublish
	default:
		return s, false
	}
	if s.p == pPublish {
		s.pArm, s.pBefore, s.pUsed, s.pFutex, s.pSend = modelArm{}, modelNotified{}, 0, false, false
		if m.broken == "arm before tail" {
			s.pArm = s.arm
		}
	}
	return s, true
}

// decide is the middle of ring_announce.
func (m *model) decide(s *modelState) uint8 {
	a := answer(s.pArm, s.notified)
	armed := s.pArm.state == notifyArmed || s.pArm.state == notifyWatched
	asleep := s.pArm.state == notifyAsleep || s.pArm.state == notifyWatched
	if s.pArm.state == notifyDisarmed || a >= answerNotified || armed && s.pUsed == 0 {
		return pPublish
	}
	s.pSend, s.pFutex = armed || s.pUsed > s.pArm.want, asleep && a == answerNone
	if !s.pSend && !s.pFutex {
		return pPublish
	}
	return pNotify
}

// returned is the end of a read(2) of n bytes, and what the program does then.
func (m *model) returned(s modelState) modelState {
	short := s.done < m.want
	s.done, s.rested = 0, false
	switch {
	case m.blocking, m.edges && !short:
		s.c = cTake
	default:
		s.c = cWait
	}
	return s
}

// drained is the end of drain_doorbells.
func (m *model) drained(s *modelState, empty bool) {
	switch {
	case s.back == cWait: // a spurious byte
		s.c = cTake
	case empty || s.done == m.want:
		s.c = cReturn
	default:
		s.c = cTake
	}
}

// consumer makes one step, if it can.
func (m *model) consumer(s modelState) (next []modelState) {
	switch s.c {
	case cTake:
		n := min(m.want-s.done, s.tail-s.head)
		if n == 0 {
			s.c = cReturn
			break
		}
		s.head += n
		s.done += n
		s.c = cAgain
	case cAgain:
		s.back = cAgain
		switch {
		case s.tail == s.head:
			s.c = cLoad
		case s.done == m.want:
			s.c = cReturn
		default:
			s.c = cTake
		}
	case cLoad:
		s.saw, s.c = s.notified, cArm
	case cArm:
		if answer(s.arm, s.saw) != answerNone && m.broken != "no epoch" {
			s.arm.epoch = (s.arm.epoch + 1) % modelEpochs
		}
		s.arm.state, s.c = notifyArmed, cCount
	case cCount:
		if s.notified.answer == answerPending && m.broken != "not waiting" {
			if s.waited++; s.waited < 4 { // it yields, and then goes on
				break
			}
		}
		s.waited, s.count, s.c = 0, s.notified.count-s.taken, cLook
		if m.broken == "no look" {
			s.c = cDrain
		}
	case cLook:
		s.c = cDrain
		if m.broken == "count after look" {
			s.c = cLate
		}
		if s.tail != s.head {
			s.c = cPending
		}
	case cLate:
		s.count, s.c = s.notified.count-s.taken, cDrain
	case cPending:
		if m.broken == "count after look" {
			s.count = s.notified.count - s.taken
		}
		s.c = cDisarm
		if s.count == 0 && m.broken != "always disarmed" || s.arm.state != notifyArmed {
			m.drained(&s, false)
		}
	case cDisarm:
		s.arm.state = notifyDisarmed
		m.drained(&s, false)
	case cDrain:
		n := min(s.count, s.sock)
		s.sock -= n
		s.taken += n
		s.count -= n
		s.c = cYield
		if m.broken == "drain all" {
			s.sock = 0
		}
	case cYield:
		yields := s
		m.drained(&s, true) // or it has yielded often enough
		if yields.c = cDrain; yields.count > 0 {
			next = append(next, yields)
		}
	case cReturn:
		switch {
		case s.done > 0:
			s = m.returned(s)
		case m.blocking && !s.rested:
			s.c = cLie
		default:
			s.rested, s.c = false, cWait
		}
	case cLie:
		s.saw, s.c = s.notified, cWait
		if s.arm.state == notifyArmed && answer(s.arm, s.saw) == answerNone {
			s.c = cSleepy
		}
	case cSleepy:
		s.arm.state, s.arm.want, s.c = notifyAsleep, m.want, cSaw
	case cSaw:
		s.saw, s.c = s.notified, cCheck
		if answer(s.arm, s.saw) != answerNone {
			s.c = cUp
		}
		if m.broken == "no check" {
			s.c = cFutex
		}
	case cCheck:
		s.c = cFutex
		if s.tail != s.head {
			s.c = cUp
		}
	case cFutex: // its value is compared in the kernel, in one step with the sleep
		s.c = cUp
		if s.notified.answer == s.saw.answer && s.notified.epoch == s.saw.epoch || m.broken == "blind sleep" {
			s.c = cAsleep
		}
	case cAsleep:
		if s.tail != s.head && s.p != pDone || m.broken != "" {
			return nil // what is wrong has to show without the help of time
		}
		s.late = s.tail != s.head
		s.c = cUp
	case cUp:
		s.rested, s.saw, s.c = true, s.notified, cUp2
	case cUp2:
		if s.arm.state != notifyDisarmed {
			s.arm.state = notifyArmed
			if answer(s.arm, s.saw) == answerWoken {
				s.arm.epoch = (s.arm.epoch + 1) % modelEpochs
			}
		}
		if m.broken == "stays asleep" {
			s.arm.state = notifyAsleep
		}
		s.c = cTake
	case cWait:
		if s.sock == 0 || m.edges && !s.edge {
			return nil
		}
		s.edge = false
		s.c = cTake
		if m.blocking || s.tail == s.head { // the read that finds nothing looks at the socket, too
			s.c = cStale
		}
	case cStale:
		s.c = cTake
		if s.tail == s.head {
			s.c = cExplain
		}
	case cExplain:
		s.back, s.c = cWait, cLoad
		if s.notified.count == s.taken {
			s.c = cTakeOne
		}
	case cTakeOne:
		if s.sock > 0 && s.tail == s.head {
			s.sock--
		}
		s.c = cTake
	}
	return append(next, s.forget())
}

// forget clears what has no meaning before the next step, so that equal states are equal.
func (s modelState) forget() modelState {
	switch s.c {
	case cLoad, cArm, cCount, cLook, cPending, cDisarm, cDrain, cYield, cLate:
	default:
		s.back, s.count = 0, 0
	}
	switch s.c {
	case cArm, cCheck, cFutex, cUp2:
	default:
		s.saw = modelNotified{}
	}
	return s
}

// wrong returns a state that must not be, and how many there are.
func (m *model) wrong() (bad *modelState, states int) {
	first := modelState{pLeft: m.messages, c: cTake}
	if !m.blocking {
		first.c = cWait
	}
	seen := map[modelState]bool{first: true}
	for todo := []modelState{first}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := m.consumer(s)
		if p, ok := m.producer(s); ok {
			next = append(next, p)
		}
		if s.late || m.isStuck(s, next) {
			return &s, len(seen)
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return nil, len(seen)
}

// isStuck reports whether nothing happens any more, and bytes are unread, or a doorbell byte has no bytes.
func (m *model) isStuck(s modelState, next []modelState) bool {
	return len(next) == 0 && s.head != m.total() || s.p == pDone && s.c == cWait && s.head == m.total() && s.sock > 0 && s.notified.count == s.taken
}

func models() (all []model) {
	for message := uint8(1); message <= 3; message++ {
		for want := uint8(1); want <= 4; want++ {
			for _, m := range []model{{blocking: true}, {}, {edges: true}} {
				m.message, m.messages, m.want = message, 5-message, want
				all = append(all, m)
			}
		}
	}
	return all
}

// TestDoorbellModel: in no order of steps does a program wait while there are bytes for it.
func TestDoorbellModel(t *testing.T) {
	all := 0
	for _, m := range models() {
		bad, n := m.wrong()
		all += n
		if bad != nil {
			t.Errorf("%+v: %+v", m, *bad)
		}
	}
	t.Logf("%d states", all)
}

// TestDoorbellModelFinds: the model finds what is wrong with protocols that lack a step, or have it in another place.
func TestDoorbellModelFinds(t *testing.T) {
	for _, broken := range []string{
		"arm before tail", "no wake", "no look", "no epoch", "always disarmed", "count after look", "count at once", "blind sleep", "stays asleep", "no check", "drain all",
	} {
		found := false
		for _, m := range models() {
			m.broken = broken
			if bad, _ := m.wrong(); bad != nil {
				found = true
				break
			}
		}
		if !found {
			t.Errorf("%s: nothing is found", broken)
		}
	}
}
