package expression

import "math"

// part is where a state's row lies in the table: parts follow each other in this order.
type part uint8

const (
	dead   part = iota // nothing can be found any more: all such states share the row 0
	asleep             // nothing has been read of any match
	awake
	ending // expressions ended before the byte that led here
	parts
)

// group lays the states out.
func (b *builder) group() group {
	stride := len(b.sample)
	g := group{class: b.class, rules: b.rules, stride: uint32(stride), full: uint32(1<<len(b.rules) - 1)}
	g.reciprocal = uint32(math.MaxUint32/stride) + 1
	in := b.parts()
	place := make([]uint16, len(b.states))
	order := []int32{-1} // of the row 0
	for k := asleep; k < parts; k++ {
		switch k {
		case awake:
			g.rest = uint32(len(order) * stride)
		case ending:
			g.accept = uint32(len(order) * stride)
		}
		for i := range b.states {
			if in[i] == k {
				place[i] = uint16(len(order) * stride)
				order = append(order, int32(i))
			}
		}
	}
	for _, i := range order {
		if i < 0 {
			g.next, g.final = append(g.next, make([]uint16, stride)...), append(g.final, 0)
			continue
		}
		s := &b.states[i]
		for _, to := range s.next {
			g.next = append(g.next, place[to])
		}
		g.final = append(g.final, s.final)
		if s.mask != 0 {
			g.masks = append(g.masks, s.mask)
		}
	}
	for len(g.next)%8 != 0 {
		g.next = append(g.next, 0) // kernels copy sixteen bytes at a time
	}
	for _, c := range b.sample {
		g.idle = append(g.idle, place[b.state(nil, b.beforeOf(c), 0)])
	}
	g.start = place[0]
	return g
}

// parts sorts the states into parts.
func (b *builder) parts() []part {
	in := make([]part, len(b.states))
	from := make([][]int32, len(b.states)) // the states that lead to each
	var stack []int32
	for i := range b.states {
		s := &b.states[i]
		for _, to := range s.next {
			if n := len(from[to]); n == 0 || from[to][n-1] != int32(i) {
				from[to] = append(from[to], int32(i))
			}
		}
		if s.mask != 0 || s.final != 0 {
			stack = append(stack, int32(i))
		}
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if in[i] != dead {
			continue
		}
		switch s := &b.states[i]; {
		case s.mask != 0:
			in[i] = ending
		case len(s.threads) == 0 && s.final == 0:
			in[i] = asleep
		default:
			in[i] = awake
		}
		stack = append(stack, from[i]...)
	}
	return in
}
