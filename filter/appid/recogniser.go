package appid

import "unsafe"

// IP protocol numbers.
const (
	tcp = 6
	udp = 17
)

// recogniser knows one protocol over one transport.
type recogniser struct {
	protocol  Protocol
	transport uint8
	ports     []uint16 // where it is asked first
	first     string   // the first bytes that a payload may have, in either direction; empty for any
	match     func(v *view) verdict
}

// index is the recognisers of one transport.
type index struct {
	first [256]set
	ports map[uint16]*set
}

func (x *index) usual(destination, source uint16) *set {
	if s := x.ports[destination]; s != nil {
		return s
	}
	return x.ports[source]
}

var overTCP, overUDP = newIndex(tcp), newIndex(udp)

func newIndex(transport uint8) index {
	x := index{ports: map[uint16]*set{}}
	for i, r := range recognisers {
		if r.transport != transport {
			continue
		}
		for b := range x.first {
			if r.first == "" {
				x.first[b].add(i)
			}
		}
		for _, b := range []byte(r.first) {
			x.first[b].add(i)
		}
		for _, p := range r.ports {
			if x.ports[p] == nil {
				x.ports[p] = &set{}
			}
			x.ports[p].add(i)
		}
	}
	return x
}

// ask calls the recogniser. The compiler can not see that no recogniser keeps a view, as the call is indirect, and would put
// the view of each packet on the heap: the pointer is hidden from its escape analysis.
func (r *recogniser) ask(v *view) verdict {
	hidden := uintptr(unsafe.Pointer(v))
	return r.match(*(**view)(unsafe.Pointer(&hidden)))
}
