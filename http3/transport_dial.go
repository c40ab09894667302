package http3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/millrace/millrace/quic"
)

func (t *Transport) dial(ctx context.Context, to destination, again bool) (*clientConn, error) {
	tc := t.TLS.Clone()
	if tc == nil {
		tc = &tls.Config{}
	}
	if tc.ServerName == "" {
		tc.ServerName = to.name
	}
	tc.NextProtos = []string{NextProto}
	var qc quic.Config
	if t.QUIC != nil {
		qc = *t.QUIC
	}
	o := t.Machine.withDefaults()
	qc.Datagrams = qc.Datagrams || o.Datagrams
	qc.ResetAt = qc.ResetAt || o.WebTransport > 0
	if qc.MaxStreams == 0 && o.WebTransport == 0 {
		qc.MaxStreams = -1 // RFC 9114 6.1: a server opens none
	}
	qc.ZeroRTT = qc.ZeroRTT && !again
	var cache *sessionCache
	if qc.ZeroRTT && tc.ClientSessionCache != nil {
		cache = &sessionCache{under: tc.ClientSessionCache}
		tc.ClientSessionCache = cache
	}
	dial := t.Dial
	if dial == nil {
		dial = t.dialUDP
	}
	q, err := dial(ctx, to.addr, tc, &qc)
	if err != nil {
		return nil, err
	}
	c := newClientConn(t, q, o)
	c.remember(cache)
	if err := c.start(); err != nil {
		return nil, err
	}
	if o.WebTransport > 0 {
		go c.acceptStreams()
	}
	return c, nil
}

// dialUDP dials from the transport's socket.
func (t *Transport) dialUDP(ctx context.Context, addr string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
	t.mu.Lock()
	if t.quic == nil && !t.closed {
		pc, err := net.ListenPacket("udp", ":0")
		if err == nil {
			t.quic, err = quic.NewTransport(pc, quic.TransportConfig{})
		}
		if err != nil {
			t.mu.Unlock()
			return nil, fmt.Errorf("http3: %w", err)
		}
	}
	q := t.quic
	t.mu.Unlock()
	if q == nil {
		return nil, ErrTransportClosed
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("http3: %w", err)
	}
	ips, err := t.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("http3: %w", err)
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, fmt.Errorf("http3: %w", err)
	}
	var errs []error
	for _, ip := range ips {
		c, err := q.Dial(ctx, &net.UDPAddr{IP: ip.Unmap().AsSlice(), Zone: ip.Zone(), Port: number}, tc, qc)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
