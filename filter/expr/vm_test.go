package expr

// auxData are the metadata that a program of the kernel may load.
type auxData struct{ present, tag, packetType, ifindex uint32 }

// interpret runs a classic BPF program as the C interpreter of libpcap does: the slow, obvious form.
// It returns the result, or 0 after too many steps.
func interpret(prog []Instruction, pkt []byte, length uint32, aux *auxData) uint32 {
	var a, x uint32
	var m [16]uint32
	steps := 0
	for pc := 0; ; pc++ {
		if steps++; steps > 200000 {
			return 0
		}
		in := prog[pc]
		size := map[uint16]uint8{bpfW: 4, bpfH: 2, bpfB: 1}[in.Op&0x18]
		ok := true
		switch in.Op & 7 {
		case bpfLD:
			switch in.Op & 0xe0 {
			case bpfIMM:
				a = in.K
			case bpfABS:
				if v, is := aux.load(in.K); is {
					a = v
				} else {
					a, ok = loadAt(pkt, uint64(in.K), size)
				}
			case bpfIND:
				a, ok = loadAt(pkt, uint64(in.K)+uint64(x), size)
			case bpfMEM:
				a = m[in.K]
			case bpfLEN:
				a = length
			}
		case bpfLDX:
			switch in.Op & 0xe0 {
			case bpfIMM:
				x = in.K
			case bpfMEM:
				x = m[in.K]
			case bpfMSH:
				x, ok = loadAt(pkt, uint64(in.K), 1)
				x = x & 0xf << 2
			case bpfLEN:
				x = length
			}
		case bpfST:
			m[in.K] = a
		case bpfSTX:
			m[in.K] = x
		case bpfALU:
			v := in.K
			if in.Op&bpfX != 0 {
				v = x
			}
			switch in.Op & 0xf0 {
			case bpfADD:
				a += v
			case bpfSUB:
				a -= v
			case bpfMUL:
				a *= v
			case bpfDIV, bpfMOD:
				if v == 0 {
					return 0
				}
				if in.Op&0xf0 == bpfDIV {
					a /= v
				} else {
					a %= v
				}
			case bpfOR:
				a |= v
			case bpfAND:
				a &= v
			case bpfXOR:
				a ^= v
			case bpfLSH:
				a <<= v
			case bpfRSH:
				a >>= v
			case bpfNEG:
				a = -a
			}
		case bpfJMP:
			v := in.K
			if in.Op&bpfX != 0 {
				v = x
			}
			var taken bool
			switch in.Op & 0xf0 {
			case bpfJA:
				pc += int(int32(in.K))
				continue
			case bpfJEQ:
				taken = a == v
			case bpfJGT:
				taken = a > v
			case bpfJGE:
				taken = a >= v
			case bpfJSET:
				taken = a&v != 0
			}
			if taken {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		case bpfRET:
			return in.K
		case bpfMISC:
			if in.Op&0xf8 == bpfTXA {
				a = x
			} else {
				x = a
			}
		}
		if !ok {
			return 0
		}
	}
}

func (d *auxData) load(k uint32) (uint32, bool) {
	if d == nil {
		return 0, false
	}
	switch k {
	case auxVLANPresent:
		return d.present, true
	case auxVLANTag:
		return d.tag, true
	case auxPacketType:
		return d.packetType, true
	case auxIfindex:
		return d.ifindex, true
	}
	return 0, false
}
