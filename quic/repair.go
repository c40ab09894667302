package quic

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/millrace/millrace/quic/fec"
)

// offering returns tc with the schemes of datagram repair beside each application protocol.
func (c *Config) offering(tc *tls.Config) (*tls.Config, error) {
	if c == nil || c.DatagramRepair == nil {
		return tc, nil
	}
	if tc.GetConfigForClient != nil {
		return nil, fmt.Errorf("%w: DatagramRepair needs its protocols in NextProtos, which GetConfigForClient replaces", ErrConfig)
	}
	tc = tc.Clone()
	var offered []string
	for _, protocol := range tc.NextProtos {
		offered = append(offered, fec.Offer(protocol, c.DatagramRepair.Scheme)...)
	}
	tc.NextProtos = offered
	return tc, nil
}

// repairing sets datagram repair up as the handshake, which is complete, agreed on it.
func (c *Conn) repairing(cfg *Config) error {
	if cfg == nil || cfg.DatagramRepair == nil {
		return nil
	}
	agreed := *cfg.DatagramRepair
	c.protocol, agreed.Scheme = fec.Negotiated(c.q.ConnectionState().TLS.NegotiatedProtocol)
	var err error
	c.repair, err = fec.NewConn(plainDatagrams{c}, agreed)
	c.scheme = agreed.Scheme
	return err
}

// plainDatagrams are the datagrams of a connection as they are on the wire.
type plainDatagrams struct{ *Conn }

func (p plainDatagrams) SendDatagram(b []byte) error { return convert(p.q.SendDatagram(b)) }

func (p plainDatagrams) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := p.q.ReceiveDatagram(ctx)
	return b, convert(err)
}

// FlushDatagrams sends a repair symbol for the datagrams since the last one, at the end of a burst. Without datagram repair it
// does nothing.
func (c *Conn) FlushDatagrams() error {
	if c.repair == nil {
		return nil
	}
	return c.repair.Flush()
}

// RepairStats returns the counters of datagram repair at the receiving side.
func (c *Conn) RepairStats() fec.DecoderStats {
	if c.repair == nil {
		return fec.DecoderStats{}
	}
	return c.repair.Stats()
}
