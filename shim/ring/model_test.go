package ring

import "testing"

// A model of one direction of direct rings: the steps of directio.c and direct.c, each of which touches shared memory, futex(2) or the
// socket once, in all orders that two threads can make of them. What is asked: a consumer that waits for ever has read all.

// Steps of the producer (publish, direct_announce).
const (
	pPublish  = iota
	pNotifier // load notifier
	pHead     // load head
	pWant     // load want, and decide
	pChange   // compare and swap notifier
	pWake     // futex(2)
	pByte     // send(2)
	pDone
)

// Steps of the consumer (direct_receive).
const (
	cTake    = iota // look at tail, and free what is taken
	cAgain          // is the ring empty?
	cLoad           // settle: load notifier
	cArm            // compare and swap
	cLook           // look at tail once more
	cPending        // there is something: the byte of before announces it
	cDrain          // take the doorbell bytes
	cReturn         // of read(2)
	cLie            // lie_down: load notifier
	cSleepy         // compare and swap
	cCheck          // look at tail, before
	cFutex          // futex(2)
	cAsleep         // in it
	cUp             // get_up: load notifier
	cUp2            // compare and swap
	cWait           // until the socket is readable: recv(MSG_PEEK), poll(2), or an edge of epoll(7)
	cStale          // it is, and the ring is empty?
	cExplain        // is there a byte that was counted?
	cTakeOne        // one that was not
)

const (
	mArmed = iota
	mDisarmed
	mSpinning
	mAsleep
	mWoken
)

type modelNotifier struct{ state, epoch, count uint8 }

// modelState is all that the two threads and the kernel have.
type modelState struct {
	tail, head, want, sock, taken uint8
	notifier                      modelNotifier
	edge                          bool

	p            uint8
	pSaw, pNext  modelNotifier
	pUsed, pLeft uint8 // messages to come
	pFutex       bool
	pSend        bool

	c            uint8
	cSaw         modelNotifier
	cLeft        uint8 // bytes that were announced and not taken
	done         uint8 // bytes of this read
	rested, dead bool
	back         uint8 // where settle returns to
}

// A model is how the program reads, and what is wrong with the protocol.
type model struct {
	message, messages, want uint8
	blocking, edges         bool
	broken                  string
}

func (m *model) total() uint8 { return m.message * m.messages }

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
		s.p = pNotifier
		if m.broken == "notifier before tail" { // it has been loaded before
			s.p = pHead
		}
	case pNotifier:
		s.pSaw, s.p = s.notifier, pHead
	case pHead:
		s.pUsed, s.p = s.tail-s.head, pWant
	case pWant:
		more := s.pUsed > s.want
		st := s.pSaw.state
		s.p = m.after()
		if st == mDisarmed || !more && (st == mSpinning || st == mWoken) || s.pUsed == 0 && st == mArmed {
			break
		}
		s.pSend, s.pFutex = more || st == mArmed, st == mAsleep
		s.pNext = s.pSaw
		s.pNext.state = mWoken
		if s.pSend {
			s.pNext.state = mDisarmed
			s.pNext.count++
		}
		s.p = pChange
	case pChange:
		if s.notifier != s.pSaw {
			s.pSaw, s.p = s.notifier, pHead
			break
		}
		s.notifier = s.pNext
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
		s.p = m.after()
	default:
		return s, false
	}
	if s.p == pPublish {
		s.pSaw, s.pNext, s.pUsed, s.pFutex, s.pSend = modelNotifier{}, modelNotifier{}, 0, false, false
		if m.broken == "notifier before tail" {
			s.pSaw = s.notifier
		}
	}
	return s, true
}

func (m *model) after() uint8 { return pPublish }

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

// consumer makes one step, or two that are possible: the second is the end of a sleep by time.
func (m *model) consumer(s modelState) (next []modelState) {
	step := func(s modelState) { next = append(next, s) }
	settled := func(empty bool) {
		switch {
		case s.back == cWait: // stale
			s.c = cTake
		case empty || s.done == m.want:
			s.c = cReturn
		default:
			s.c = cTake
		}
	}
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
		s.cSaw, s.c = s.notifier, cArm
	case cArm:
		if s.notifier != s.cSaw {
			s.cSaw = s.notifier
			break
		}
		s.notifier.state = mArmed
		s.notifier.epoch = (s.notifier.epoch + 1) % 8
		if m.broken == "no epoch" {
			s.notifier.epoch = 0
		}
		s.cSaw, s.cLeft, s.c = s.notifier, s.notifier.count-s.taken, cLook
		if m.broken == "drain all" {
			s.cLeft = 100
		}
		if m.broken == "no look" {
			s.c = cDrain
		}
	case cLook:
		s.c = cDrain
		if s.tail != s.head {
			s.c = cPending
		}
	case cPending:
		if (s.cLeft > 0 || m.broken == "always disarmed") && s.notifier == s.cSaw {
			s.notifier.state = mDisarmed
		}
		settled(false)
	case cDrain:
		n := min(s.cLeft, s.sock)
		s.sock -= n
		s.taken += n
		settled(true)
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
		s.cSaw, s.c = s.notifier, cWait
		if s.cSaw.state == mArmed {
			s.want, s.c = m.want, cSleepy
		}
	case cSleepy:
		if s.notifier != s.cSaw {
			s.c = cWait
			break
		}
		s.notifier.state = mAsleep
		s.cSaw, s.c = s.notifier, cCheck
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
		if s.notifier.state == s.cSaw.state && s.notifier.epoch == s.cSaw.epoch || m.broken == "blind sleep" {
			s.c = cAsleep
		}
	case cAsleep:
		if m.broken != "" {
			return nil // what is wrong has to show without the help of time
		}
		s.c = cUp
		if s.tail != s.head && s.p == pDone {
			s.dead = true // it has slept although there were bytes
		}
	case cUp:
		s.rested, s.cSaw, s.c = true, s.notifier, cTake
		if s.notifier.state == mAsleep || s.notifier.state == mWoken || s.notifier.state == mSpinning {
			s.c = cUp2
		}
	case cUp2:
		if s.notifier != s.cSaw {
			s.c = cUp
			break
		}
		s.notifier.state = mArmed
		s.c = cTake
		if m.broken == "stays woken" {
			s.notifier.state = mWoken
		}
	case cWait:
		if s.sock == 0 || m.edges && !s.edge {
			return nil
		}
		s.edge = false
		s.c = cTake
		if m.blocking {
			s.c = cStale
		}
		if !m.blocking && s.tail == s.head { // the read that finds nothing looks at the socket, too
			s.c = cStale
		}
	case cStale:
		s.c = cTake
		if s.tail == s.head {
			s.c = cExplain
		}
	case cExplain:
		s.back, s.c = cWait, cLoad
		if s.notifier.count == s.taken {
			s.c = cTakeOne
		}
	case cTakeOne:
		if s.sock > 0 && s.tail == s.head {
			s.sock--
		}
		s.c = cTake
	}
	if s.c != cLoad && s.c != cArm && s.c != cLook && s.c != cPending && s.c != cDrain {
		s.back, s.cLeft = 0, 0
		if s.c != cSleepy && s.c != cCheck && s.c != cFutex && s.c != cUp2 {
			s.cSaw = modelNotifier{}
		}
	}
	step(s)
	return next
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
		if s.dead || len(next) == 0 && s.head != m.total() {
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

// TestDoorbellModelFinds: the model finds what is wrong with protocols that lack a step.
func TestDoorbellModelFinds(t *testing.T) {
	for _, broken := range []string{"notifier before tail", "no wake", "no look", "always disarmed", "blind sleep", "stays woken", "drain all"} {
		found := false
		for _, m := range models() {
			m.broken = broken
			bad, _ := m.wrong()
			found = found || bad != nil
		}
		if !found {
			t.Errorf("%s: nothing is found", broken)
		}
	}
}

// spaceState is a model of a producer that waits for space (await_room, free_space), and a consumer that reads all.
type spaceState struct {
	tail, head, left uint8
	space            uint8 // bits sleeps, filled
	filled, counted  uint8 // fills that are in the consumer's socket; that were counted

	p, c, value uint8
	had         uint8
}

const (
	spaceSize    = 2
	modelSleeps  = 1
	modelFilled  = 2
	spaceBytes   = 6
	sPut         = 0 // look at head, and publish
	sAsk         = 1 // set the bit
	sCount       = 2 // the fill
	sFill        = 3 // send(2)
	sLookAgain   = 4 // is there space?
	sSleep       = 5 // futex(2)
	sAsleep      = 6
	sNotWritable = 7 // poll(2)
	sDone        = 8

	rTake, rSpace, rUsed, rExchange, rWake, rDrain, rEmpty = 0, 1, 2, 3, 4, 5, 6
)

func spaceProducer(s spaceState, fills bool, broken string) (spaceState, bool) {
	switch s.p {
	case sPut:
		switch {
		case s.left == 0:
			s.p = sDone
		case s.tail-s.head < spaceSize:
			s.tail++
			s.left--
		default:
			s.p = sAsk
		}
	case sAsk:
		if !fills {
			s.space |= modelSleeps
			s.value, s.p = s.space, sLookAgain
			if broken == "no look" {
				s.p = sSleep
			}
			break
		}
		s.p = sCount
		if s.space&modelFilled != 0 {
			s.p = sLookAgain
		}
		s.space |= modelFilled
	case sCount:
		s.counted++
		s.p = sFill
	case sFill:
		s.filled++
		s.p = sLookAgain
		if broken == "no look" {
			s.p = sNotWritable
		}
	case sLookAgain:
		switch {
		case s.tail-s.head < spaceSize:
			s.p = sPut
		case fills:
			s.p = sNotWritable
		default:
			s.p = sSleep
		}
	case sSleep:
		s.p = sPut
		if s.space == s.value {
			s.p = sAsleep
		}
	case sNotWritable:
		if s.filled > 0 {
			return s, false
		}
		s.p = sPut
	default:
		return s, false
	}
	return s, true
}

func spaceConsumer(s spaceState, broken string) (spaceState, bool) {
	switch s.c {
	case rTake:
		if s.tail == s.head { // the doorbells of the other model are behind: it waits for bytes
			return s, false
		}
		s.head++
		s.c = rSpace
		if s.tail == s.head {
			s.c = rEmpty
		}
	case rEmpty: // settle
		n := min(s.counted, s.filled)
		s.counted -= n
		s.filled -= n
		s.c = rSpace
	case rSpace:
		s.c = rTake
		if s.space != 0 {
			s.c = rUsed
		}
	case rUsed:
		s.c = rTake
		if s.tail-s.head <= spaceSize/2 {
			s.c = rExchange
		}
	case rExchange:
		s.had, s.space, s.c = s.space, 0, rWake
	case rWake:
		if s.had&modelSleeps != 0 && s.p == sAsleep && broken != "no wake" {
			s.p = sPut
		}
		s.c = rTake
		if s.had&modelFilled != 0 {
			s.c = rDrain
		}
		s.had = 0
	case rDrain:
		n := min(s.counted, s.filled)
		s.counted -= n
		s.filled -= n
		s.c = rTake
	}
	return s, true
}

func spaceWrong(fills bool, broken string) *spaceState {
	first := spaceState{left: spaceBytes}
	seen := map[spaceState]bool{first: true}
	for todo := []spaceState{first}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		stuck := true
		for _, step := range []func() (spaceState, bool){
			func() (spaceState, bool) { return spaceProducer(s, fills, broken) },
			func() (spaceState, bool) { return spaceConsumer(s, broken) },
		} {
			n, ok := step()
			stuck = stuck && !ok
			if ok && !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
		if stuck && s.head != spaceBytes {
			return &s
		}
	}
	return nil
}

// TestSpaceModel: in no order of steps does a producer wait while there is space.
func TestSpaceModel(t *testing.T) {
	for _, fills := range []bool{false, true} {
		if bad := spaceWrong(fills, ""); bad != nil {
			t.Errorf("fills %v: %+v", fills, *bad)
		}
	}
	for _, tc := range []struct {
		fills  bool
		broken string
	}{{false, "no look"}, {false, "no wake"}} {
		if spaceWrong(tc.fills, tc.broken) == nil {
			t.Errorf("%v: nothing is found", tc)
		}
	}
}
