package expr

// chain writes the walk along headers, with the protocol in A and the length so far in X.
func (a *assembler) chain(w *chain, t, f label) {
	keep := a.cell()
	if w.v6 {
		a.emit(bpfLD|bpfABS|bpfB, w.base+ipv6Next)
		a.emit(bpfLDX|bpfIMM, ipv6HeaderLen)
	} else {
		a.emit(bpfLD|bpfABS|bpfB, w.base+ipv4Proto)
		a.emit(bpfLDX|bpfB|bpfMSH, w.base)
	}
	for range w.limit() {
		a.oneHeader(w, keep, t, f)
	}
	a.branch(bpfJEQ, w.proto, t, f)
	a.free(keep)
}

// oneHeader writes one step of the walk. Its conditional jumps out of the walk go by way of two jumps
// at the end of the step, which are always near.
func (a *assembler) oneHeader(w *chain, keep uint32, t, f label) {
	found, missed, next := a.label(), a.label(), a.label()
	extension, auth := a.label(), a.label()
	is := func(proto uint32, t label) {
		no := a.label()
		a.branch(bpfJEQ, proto, t, no)
		a.place(no)
	}
	is(w.proto, found)
	is(ipNoNext, missed)
	if w.v6 {
		for _, p := range []uint32{ipHopByHop, ipDestOpts, ipRouting, ipFragment} {
			is(p, extension)
		}
	}
	a.branch(bpfJEQ, ipAH, auth, missed)
	if w.v6 {
		a.place(extension)
		a.headerLen(w, keep, 1, 8, true)
		a.jump(next)
	}
	a.place(auth)
	a.headerLen(w, keep, 2, 4, false)
	a.jump(next)
	a.place(found)
	a.jump(t)
	a.place(missed)
	a.jump(f)
	a.place(next)
}

// headerLen loads the next protocol into A and moves X by (length field + add) * unit, or to that where
// the move is not relative.
func (a *assembler) headerLen(w *chain, keep, add, unit uint32, relative bool) {
	a.emit(bpfLD|bpfIND|bpfB, w.base)
	a.emit(bpfST, keep)
	a.emit(bpfLD|bpfIND|bpfB, w.base+1)
	a.emit(bpfALU|bpfADD, add)
	a.emit(bpfALU|bpfMUL, unit)
	if relative {
		a.emit(bpfALU|bpfADD|bpfX, 0)
	}
	a.emit(bpfMISC|bpfTAX, 0)
	a.emit(bpfLD|bpfMEM, keep)
}
