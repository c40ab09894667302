package rdma

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// Endpoint holds the values that two sides exchange before they connect, by any other way. The text form is that of the
// pingpong programs of libibverbs.
type Endpoint struct {
	Addr netip.Addr
	QPN  uint32
	PSN  uint32 // of the first packet that the side sends

	// Window is the number of packets behind a gap that the side keeps; 0 is none: it has no selective repeat. In the text it has the
	// place of the LID, which is 0 of others with RoCE.
	Window uint16
}

// String returns "LID:QPN:PSN:GID" in hexadecimal. The GID of IPv4 is IPv4-mapped.
func (e Endpoint) String() string {
	gid := wire.AddrFrom(e.Addr)
	return fmt.Sprintf("%04x:%06x:%06x:%s", e.Window, e.QPN, e.PSN, hex.EncodeToString(gid[:]))
}

// ParseEndpoint reads the text of String.
func ParseEndpoint(s string) (e Endpoint, err error) {
	var gid string
	if _, err := fmt.Sscanf(s, "%x:%x:%x:%s", &e.Window, &e.QPN, &e.PSN, &gid); err != nil {
		return e, fmt.Errorf("rdma: endpoint %q: want LID:QPN:PSN:GID in hexadecimal", s)
	}
	b, err := hex.DecodeString(gid)
	if err != nil || len(b) != 16 || e.QPN > roce.Mask24 || e.PSN > roce.Mask24 {
		return e, fmt.Errorf("rdma: endpoint %q: want LID:QPN:PSN:GID in hexadecimal", s)
	}
	e.Addr = wire.Addr(b).Netip()
	return e, nil
}

// ConnectConfig holds the attributes of a connection. The zero value is good between two hosts of a network.
type ConnectConfig struct {
	PSN      uint32 // of the first packet sent: the one that the peer got by QP.Endpoint
	MTU      uint32 // 0 is the largest that the devices carry; both sides have the same
	Access   Access // what the peer may do; 0 is all that regions permit
	MaxReads uint8  // READs and atomics outstanding, each way; 0 is 16
}

// Endpoint returns the other side's view of this one, with a first packet number of the caller's choice. A random
// one keeps packets of an earlier connection out.
func (q *QP) Endpoint(psn uint32) Endpoint {
	e := Endpoint{Addr: q.ctx.cfg.Addr, QPN: q.QPN(), PSN: psn & roce.Mask24}
	if q.cfg.SelectiveRepeat {
		e.Window = uint16(q.cfg.Window)
	}
	return e
}

// Connect leads a queue pair of RC or UC from Reset or Init to ReadyToSend.
func (q *QP) Connect(peer Endpoint, cfg ConnectConfig) error {
	if cfg.MTU == 0 {
		cfg.MTU = q.ctx.MaxMTU()
	}
	if cfg.Access == 0 {
		cfg.Access = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic
	}
	if cfg.MaxReads == 0 {
		cfg.MaxReads = 16
	}
	a := Attr{
		MTU: cfg.MTU, DestQP: peer.QPN, RecvPSN: peer.PSN, Access: cfg.Access, MaxDestReads: cfg.MaxReads, RNRTimer: 12,
		SendPSN: cfg.PSN & roce.Mask24, MaxReads: cfg.MaxReads, Timeout: 14, Retries: 7, RNRRetries: 7,
	}
	if q.cfg.SelectiveRepeat && peer.Window > 0 {
		a.SelectiveRepeat, a.Window = true, uint32(peer.Window)
	}
	for _, s := range []State{Init, ReadyToReceive, ReadyToSend} {
		if err := q.Modify(s, a, peer.Addr); err != nil {
			return err
		}
	}
	return nil
}

// OpenDatagrams leads a queue pair of UD from Reset to ReadyToSend. Datagrams with another queue key are dropped.
func (q *QP) OpenDatagrams(qkey uint32) error {
	if q.cfg.Service != UD {
		return fmt.Errorf("%w: not a queue pair of UD", transport.ErrAttribute)
	}
	a := Attr{QKey: qkey, MTU: q.ctx.MaxMTU()}
	for _, s := range []State{Init, ReadyToReceive, ReadyToSend} {
		if err := q.Modify(s, a, netip.Addr{}); err != nil {
			return err
		}
	}
	return nil
}
