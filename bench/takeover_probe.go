package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// echo serves datagrams on a machine until p.stop is called.
func (p *pairSite) echo(ns *testnet.Namespace, at string) error {
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", at)
		return err
	})
	if err != nil {
		return err
	}
	p.stop = append(p.stop, func() { c.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
	return nil
}

// probeEvery is the time between datagrams.
const probeEvery = time.Millisecond

// prober is the client: it sends numbered datagrams, and notes which are answered.
type prober struct {
	conn *net.UDPConn
	stop chan struct{}
	all  sync.WaitGroup

	mu       sync.Mutex
	sent     []time.Time
	answered []bool
	marked   int // datagrams sent before the failure
	answers  int // since mark
}

func (p *pairSite) probe() (*prober, error) {
	r := &prober{stop: make(chan struct{})}
	err := p.client.Do(func() (err error) {
		r.conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(pairVIP), Port: pairPort})
		return err
	})
	if err != nil {
		return nil, err
	}
	r.all.Go(r.send)
	r.all.Go(r.receive)
	return r, nil
}

func (r *prober) send() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		r.mu.Lock()
		n := len(r.sent)
		r.sent, r.answered = append(r.sent, time.Now()), append(r.answered, false)
		r.mu.Unlock()
		_, _ = r.conn.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) // a refusal is a datagram without an answer
	}
}

func (r *prober) receive() {
	b := make([]byte, 64)
	for {
		n, err := r.conn.Read(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil || n != 8:
			continue
		}
		r.mu.Lock()
		if i := binary.BigEndian.Uint64(b); i < uint64(len(r.answered)) && !r.answered[i] {
			r.answered[i] = true
			if int(i) >= r.marked {
				r.answers++
			}
		}
		r.mu.Unlock()
	}
}

// mark begins to count answers anew, of datagrams that are sent from now on.
func (r *prober) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marked, r.answers = len(r.sent), 0
}

// awaitAnswers waits until the last n datagrams but those on their way have been answered, 30 s at most.
func (r *prober) awaitAnswers(ctx context.Context, n int) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		last, enough := len(r.answered)-20, 0
		for i := last - 1; i >= r.marked && r.answered[i]; i-- {
			enough++
		}
		r.mu.Unlock()
		if enough >= n {
			return nil
		}
	}
	return errors.New("the service does not answer")
}

// gap returns the longest time between two datagrams that were answered, from a tenth of a second before the failure on.
func (r *prober) gap() (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last time.Time
	for i := max(r.marked-100, 0); i < len(r.sent); i++ {
		if !r.answered[i] {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, r.sent[i].Sub(last))
		}
		last = r.sent[i]
	}
	return longest
}

func (r *prober) close() {
	close(r.stop)
	r.conn.Close()
	r.all.Wait()
}
