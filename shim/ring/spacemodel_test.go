package ring

import "testing"

// spaceState is a model of a producer that waits for space (await_space, ring_fill), and a consumer that reads all (free_space).
type spaceState struct {
	tail, head, left uint8
	space, freed     uint8 // space: bits, and an epoch above them
	filled, counted  uint8 // fills that are in the consumer's socket; that were counted

	p, value uint8
	c, had   uint8
	drain    uint8
}

const (
	spaceSize  = 2
	spaceBytes = 6
	spaceUnit  = 4 // of the epoch
	spaceMask  = 63

	sPut         = 0 // look at head, and publish
	sFreed       = 1 // load freed
	sAsk         = 2 // store space
	sCount       = 3 // the fill
	sFill        = 4 // send(2)
	sLookAgain   = 5 // is there space?
	sSleep       = 6 // futex(2)
	sAsleep      = 7
	sNotWritable = 8 // poll(2)
	sDone        = 9

	rTake, rSpace, rCount, rUsed, rAnswer, rWake, rDrain, rEmpty = 0, 1, 2, 3, 4, 5, 6, 7
)

func (s *spaceState) waits() bool { return s.space/spaceUnit != s.freed }

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
			s.p = sFreed
		}
	case sFreed:
		s.value, s.p = s.freed, sAsk
		if fills && s.space&spaceFilled != 0 && s.waits() {
			s.p = sLookAgain // the fill of before
		}
	case sAsk:
		bit := uint8(spaceSleeps)
		if s.p = sLookAgain; fills {
			bit, s.p = spaceFilled, sCount
		}
		s.space = (s.space/spaceUnit+1)*spaceUnit&spaceMask | bit
		if broken == "no look" && !fills {
			s.p = sSleep
		}
	case sCount:
		s.counted++
		s.p = sFill
	case sFill:
		s.filled++
		s.p = sLookAgain
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
		if s.freed == s.value || broken == "blind sleep" {
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
	case rEmpty: // drain_doorbells
		n := min(s.counted, s.filled)
		s.counted -= n
		s.filled -= n
		s.c = rSpace
	case rSpace:
		s.c = rTake
		if s.had = s.space; s.waits() {
			s.c = rCount
		}
	case rCount:
		s.drain, s.c = s.counted, rUsed
	case rUsed:
		s.c = rTake
		if s.tail-s.head <= spaceSize/2 {
			s.c = rAnswer
		}
	case rAnswer:
		s.freed, s.c = s.had/spaceUnit, rWake
		if broken == "newest epoch" {
			s.freed = s.space / spaceUnit
		}
	case rWake:
		if s.had&spaceSleeps != 0 && s.p == sAsleep && broken != "no wake" {
			s.p = sPut
		}
		s.c = rTake
		if s.had&spaceFilled != 0 {
			s.c = rDrain
		}
	case rDrain:
		n := min(s.drain, s.filled)
		s.counted -= n
		s.filled -= n
		s.c = rTake
	}
	if s.c == rTake {
		s.had, s.drain = 0, 0
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
	for _, broken := range []string{"no look", "no wake", "blind sleep"} {
		if spaceWrong(false, broken) == nil {
			t.Errorf("%s: nothing is found", broken)
		}
	}
}
