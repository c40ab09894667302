package h3side

import (
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/side"
)

// TakeDatagrams implements side.Datagrams.
func (st *Stream) TakeDatagrams(f func(p []byte)) {
	st.datagramID, st.takes = st.S.ID(), true
	st.conn.takeDatagrams(st.datagramID, f)
}

func (k *Conn) takeDatagrams(stream uint64, f func(p []byte)) {
	if k.takers == nil {
		k.takers = map[uint64]func([]byte){}
		k.C.TakeDatagrams(k.datagram)
	}
	k.takers[stream] = f
}

// leaveDatagrams has the stream take no more.
func (st *Stream) leaveDatagrams() {
	if st.takes {
		delete(st.conn.takers, st.datagramID)
		st.takes = false
	}
}

// datagram hands a datagram to the stream that it names. Those of others are dropped: they may have come before or after it (RFC 9297 2.1).
func (k *Conn) datagram(p []byte) {
	k.w.Enter()
	if k.closed {
		return
	}
	id, payload, err := http3.ParseDatagram(p)
	if err != nil {
		k.fail(err)
		return
	}
	if f := k.takers[id]; f != nil {
		f(payload)
	}
}

// SendDatagram implements side.Datagrams.
func (st *Stream) SendDatagram(p []byte) side.Sent {
	k := st.conn
	switch {
	case !k.m.Datagrams() || !st.takes:
		return side.NoDatagrams
	case !k.C.SendDatagram(http3.AppendDatagram(nil, st.datagramID, p)):
		return side.DatagramLost
	}
	return side.DatagramSent
}
