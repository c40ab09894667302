package expr

// rangeTest is whether a value lies in a range: (v & mask) - low <= span, unsigned and modulo 2^32. All
// comparisons with a constant have this form, so that a processor needs one kind of them.
type rangeTest struct {
	mask, low, span uint32
}

func (r rangeTest) holds(v uint32) bool { return v&r.mask-r.low <= r.span }

// rangeOf returns a step as a range test of a value. The step holds where the test does, or where it does
// not if inverted. ok is false for steps that are no comparison with a constant, or compare with
// constants that no value is above.
func rangeOf(s *step) (v *value, r rangeTest, inverted, ok bool) {
	const most = 1<<32 - 1
	if s.op != condTest || s.b.op != valueConst {
		return nil, r, false, false
	}
	v, k := s.a, s.b.k
	r = rangeTest{mask: most, low: k}
	if v.op == valueAnd && v.y.op == valueConst {
		v, r.mask = v.x, v.y.k
	}
	switch s.cmp {
	case cmpGT:
		r.low, r.span = k+1, most-(k+1)
		ok = k != most
	case cmpGE:
		r.span = most - k
		ok = true
	case cmpSet: // not (v & mask & k == 0)
		r.mask, r.low = r.mask&k, 0
		inverted, ok = true, true
	default:
		ok = true
	}
	return v, r, inverted, ok
}
