package expr

// Bits of the 802.11 frame control field (IEEE 802.11 9.2.4.1): the first byte has type and subtype,
// the second the direction.
const (
	wlanTypeMask    = 0x0c
	wlanSubtypeMask = 0xf0
	wlanControl     = 0x04
	wlanDataFrame   = 0x08
	wlanCTS         = 0xc0
	wlanACK         = 0xd0
	wlanQoS         = 0x80
	wlanToDS        = 0x01
	wlanFromDS      = 0x02
	wlanDirMask     = 0x03
)

func (g *lowering) wlanData() *cond {
	return masked(g.load(inHeader, 0, 1), wlanDataFrame, wlanTypeMask)
}

// frameBit tests a bit of the first or second byte of the frame control field.
func (g *lowering) frameBit(k, bit uint32) *cond { return bitsSet(g.load(inHeader, k, 1), bit) }

// wlanHost tests the addresses of 802.11 frames, whose order depends on type and direction
// (IEEE 802.11 9.3.2.1).
func (g *lowering) wlanHost(mac [6]byte, dir direction) *cond {
	at := func(k uint32) *cond { return g.bytesAt(inHeader, k, mac[:]) }
	toDS := func() *cond { return g.frameBit(1, wlanToDS) }
	fromDS := func() *cond { return g.frameBit(1, wlanFromDS) }
	data := func() *cond { return g.frameBit(0, wlanDataFrame) }
	notControl := func() *cond { return not(g.frameBit(0, wlanControl)) }
	switch dir {
	case dirAddr1:
		return at(4)
	case dirAddr2:
		return and(g.hasTransmitter(), at(10))
	case dirAddr3:
		return and(not(masked(g.load(inHeader, 0, 1), wlanControl, wlanTypeMask)), at(16))
	case dirAddr4:
		return and(masked(g.load(inHeader, 1, 1), wlanToDS|wlanFromDS, wlanDirMask), at(24))
	case dirRA:
		return and(data(), at(4))
	case dirTA:
		return ands(data(), g.hasTransmitter(), at(10))
	}
	src := func() *cond {
		fromAP := and(fromDS(), or(and(not(toDS()), at(16)), and(toDS(), at(24))))
		inData := and(data(), or(and(not(fromDS()), at(10)), fromAP))
		return and(notControl(), or(and(not(data()), at(10)), inData))
	}
	dst := func() *cond {
		inData := and(data(), or(and(not(toDS()), at(4)), and(toDS(), at(16))))
		return and(notControl(), or(and(not(data()), at(4)), inData))
	}
	return eitherWay(dir, src, dst)
}

// hasTransmitter tests for a frame with a second address: not CTS and not ACK.
func (g *lowering) hasTransmitter() *cond {
	first := g.load(inHeader, 0, 1)
	return or(not(masked(first, wlanControl, wlanTypeMask)),
		and(not(masked(first, wlanCTS, wlanSubtypeMask)), not(masked(first, wlanACK, wlanSubtypeMask))))
}

// wlanMulticast tests the group bit of the destination.
func (g *lowering) wlanMulticast() *cond {
	group := func(k uint32) *cond { return bitsSet(g.load(inHeader, k, 1), 1) }
	toDS := func() *cond { return g.frameBit(1, wlanToDS) }
	data := func() *cond { return g.frameBit(0, wlanDataFrame) }
	inData := and(data(), or(and(not(toDS()), group(4)), and(toDS(), group(16))))
	return and(not(g.frameBit(0, wlanControl)), or(and(not(data()), group(4)), inData))
}

// findHeaders returns what computes the slots with the places of headers, or nil where none is used.
func (g *lowering) findHeaders() *cond {
	if g.payload.slot != noSlot && g.header.varies && g.header.slot == noSlot {
		g.header.slot = g.allocatePlace()
	}
	var first *cond
	var start *value
	if n := prefixLen(g.outermost); n != nil && g.header.slot != noSlot {
		first = set(g.header.slot, n)
		start = slotValue(g.header.slot)
		if g.header.slot == g.payload.slot {
			start = n // behind pppoes the header is the payload of the one around it
		}
	}
	switch {
	case g.payload.slot == noSlot:
	case links[g.outermost].family == familyWLAN:
		for _, c := range g.findWLANPayload(start) {
			if first == nil {
				first = c
			} else {
				first = before(first, c)
			}
		}
	case g.outermost == LinkPFLog:
		// The header is padded to whole words.
		n := compute(valueAnd, compute(valueAdd, load(nil, 0, 1), num(3)), num(0xfffffffc))
		first = set(g.payload.slot, n)
	}
	return first
}

// prefixLen returns the length of what precedes the 802.11 header, nil for nothing that varies.
func prefixLen(t LinkType) *value {
	switch t {
	case LinkPrism:
		// An AVS header may stand in its place; it has its length in the second word.
		const avsMagic, prismLen = 0x80211000, 144
		isAVS := masked(load(nil, 0, 4), avsMagic, 0xfffff000)
		return &value{op: valueIf, c: isAVS, x: load(nil, 4, 4), y: num(prismLen)}
	case LinkAVS:
		return load(nil, 4, 4)
	case LinkRadiotap, LinkPPI: // little-endian
		return compute(valueOr, load(nil, 2, 1), compute(valueShl, load(nil, 3, 1), num(8)))
	}
	return nil
}

// findWLANPayload returns what computes where the payload of an 802.11 frame begins: behind 24 bytes,
// two more where data frames have QoS, and padding where radiotap says so.
func (g *lowering) findWLANPayload(start *value) []*cond {
	if start == nil {
		start = num(g.outerHeader.k)
	}
	slot := g.payload.slot
	payload := slotValue(slot)
	control := load(start, 0, 1)
	data := and(bitsSet(control, wlanDataFrame), not(bitsSet(control, wlanControl)))
	qos := and(data, bitsSet(control, wlanQoS))
	steps := []*cond{
		set(slot, compute(valueAdd, start, num(24))),
		set(slot, &value{op: valueIf, c: qos, x: compute(valueAdd, payload, num(2)), y: payload}),
	}
	if g.current != LinkRadiotap {
		return steps
	}
	// The flags are the second field of radiotap, after the timestamp of 8 bytes, if both are there.
	present := load(nil, 4, 4) // little-endian
	flags := &value{op: valueIf, c: bitsSet(present, swap32(1)), x: load(nil, 16, 1), y: load(nil, 8, 1)}
	padded := ands(data, bitsSet(present, swap32(2)), not(bitsSet(present, swap32(1<<31))), bitsSet(flags, 0x20))
	rounded := compute(valueAnd, compute(valueAdd, payload, num(3)), num(0xfffffffc))
	return append(steps, set(slot, &value{op: valueIf, c: padded, x: rounded, y: payload}))
}
