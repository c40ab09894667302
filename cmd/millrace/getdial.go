package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
	mtls "github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/clienthello"
)

// getDialer opens connections: with the TCP that was chosen, and with TLS.
type getDialer struct {
	g      *getClient
	tls    *tls.Config // without ALPN
	stack  *socket.Stack
	keylog *os.File
	dialed func(ctx context.Context, network, address string) (net.Conn, error)
	quic   *http3.Transport
	udp    *quic.Transport // below it
}

// dialer returns what the flags say.
func (g *getClient) dialer(u *url.URL) (d *getDialer, err error) {
	d = &getDialer{g: g, dialed: new(net.Dialer).DialContext}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err = d.openTLS(u); err != nil {
		return d, err
	}
	if d.stack, err = g.stack.openStack(); d.stack != nil {
		d.dialed = d.stack.DialContext
	}
	return d, err
}

// openTLS makes the config.
func (d *getDialer) openTLS(u *url.URL) (err error) {
	g := d.g
	o := mtls.ClientOptions{}
	if g.cacert != "" {
		if o.Roots, err = mtls.LoadRoots(g.cacert); err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
	}
	if g.cert != "" {
		o.Certificates = &mtls.Store{}
		if err = o.Certificates.Load(mtls.KeyPair{CertFile: g.cert, KeyFile: g.key, Default: true}); err != nil {
			return fmt.Errorf("--cert: %w", err)
		}
	} else if g.key != "" {
		return usage("--key without --cert")
	}
	if g.ech != "" {
		if u.Scheme != "https" {
			return usage("--ech needs an https URL")
		}
		if o.ECHConfigList, err = base64.StdEncoding.DecodeString(g.ech); err != nil {
			return usage("--ech: no base64: take the value of ech in the HTTPS record")
		}
	}
	name := g.keylog
	if name == "" {
		name = os.Getenv("SSLKEYLOGFILE")
	}
	if name != "" {
		if d.keylog, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("--keylog: %w", err)
		}
		o.KeyLog = d.keylog
	}
	if d.tls, err = mtls.NewClientConfig(o); err != nil {
		return err
	}
	if g.cert == "" { // HTTP/2 and TLS 1.3 lose the alert of a server that wants one
		d.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.asked = true
			return &tls.Certificate{}, nil
		}
	}
	if g.insecure { // the user asked for it
		d.tls.InsecureSkipVerify, d.tls.VerifyConnection = true, nil
	}
	return nil
}

// close returns the interface and ends the key log.
func (d *getDialer) close() (err error) {
	if d.quic != nil {
		err = d.quic.Close()
	}
	if d.udp != nil {
		err = errors.Join(err, d.udp.Close())
	}
	if d.stack != nil {
		err = errors.Join(err, d.stack.Close())
	}
	if d.keylog != nil {
		err = errors.Join(err, d.keylog.Close())
	}
	return err
}

// dial resolves the host, connects to its addresses one after another, and watches the ClientHello.
func (d *getDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d.g.times.set("dns_start")
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	d.g.times.set("dns")
	c, err := firstReached(addrs, func(a netip.Addr) (net.Conn, error) {
		return d.dialed(ctx, network, net.JoinHostPort(a.String(), port))
	})
	if err != nil {
		return nil, err
	}
	d.g.connected(c.RemoteAddr(), "the TCP")
	return &helloConn{Conn: c, report: d.g.sentHello}, nil
}

// overTCP returns a transport that speaks the versions of HTTP with these names in ALPN.
func (d *getDialer) overTCP(protocols ...string) (http.RoundTripper, error) {
	config := d.tls.Clone()
	config.NextProtos = protocols
	t := &http.Transport{DialContext: d.dial, TLSClientConfig: config, Protocols: new(http.Protocols), DisableCompression: true}
	for _, p := range protocols {
		switch p {
		case "h2":
			t.Protocols.SetHTTP2(true)
			t.Protocols.SetUnencryptedHTTP2(len(protocols) == 1)
		case "http/1.1":
			t.Protocols.SetHTTP1(true)
		}
	}
	return t, nil
}

// overQUIC returns a transport that speaks HTTP/3, over the kernel's UDP or the stack's.
func (d *getDialer) overQUIC() (http.RoundTripper, error) {
	d.quic = &http3.Transport{TLS: d.tls, DisableCompression: true, Dial: d.dialQUIC}
	if dir := d.g.qlog; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("--qlog: %w", err)
		}
		d.quic.QUIC = &quic.Config{Qlog: d.openQlog}
	}
	return d.quic, nil
}

// openQlog makes the file of a connection. One that cannot be made is reported, and the connection works.
func (d *getDialer) openQlog(_ bool, id []byte) io.WriteCloser {
	f, err := os.Create(filepath.Join(d.g.qlog, hex.EncodeToString(id)+".sqlog"))
	if err != nil {
		d.g.c.complain(fmt.Errorf("--qlog: %w", err))
		return nil
	}
	d.g.note("qlog in %s", f.Name())
	return f
}

// dialQUIC resolves the host and dials its addresses one after another, all from one port.
func (d *getDialer) dialQUIC(ctx context.Context, address string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := d.openUDP(); err != nil {
		return nil, err
	}
	d.g.times.set("dns_start")
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	d.g.times.set("dns")
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	c, err := firstReached(addrs, func(a netip.Addr) (*quic.Conn, error) {
		return d.udp.Dial(ctx, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, uint16(number))), tc, qc)
	})
	if err != nil {
		return nil, err
	}
	d.g.connected(c.RemoteAddr(), "QUIC over the UDP")
	d.g.secured(c.State().TLS)
	return c, nil
}

// openUDP opens the transport of QUIC, once.
func (d *getDialer) openUDP() (err error) {
	if d.udp != nil {
		return nil
	}
	var pc net.PacketConn
	if d.stack != nil {
		pc, err = d.stack.ListenPacket("udp", ":0")
	} else {
		pc, err = net.ListenPacket("udp", ":0")
	}
	if err != nil {
		return err
	}
	d.udp, err = quic.NewTransport(pc, quic.TransportConfig{})
	return err
}

// helloConn is a connection that reports the ClientHello that is written to it.
type helloConn struct {
	net.Conn
	report func(*clienthello.Hello)
	peeker clienthello.Peeker
	sent   []byte
	done   bool
}

// Write sends b. The first bytes are the hello, or something else.
func (c *helloConn) Write(b []byte) (int, error) {
	if !c.done {
		c.sent = append(c.sent, b...)
		h, err := c.peeker.Parse(c.sent)
		if err == nil {
			c.report(h)
		}
		if err != clienthello.ErrIncomplete {
			c.done, c.sent = true, nil
		}
	}
	return c.Conn.Write(b)
}
