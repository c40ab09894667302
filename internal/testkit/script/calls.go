package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// arg returns argument i; one that stands for anything where there is none.
func (c *Call) arg(i int) *Value {
	if i < len(c.Args) {
		return &c.Args[i]
	}
	return &Value{Any: true}
}

// now is an attempt that always returns.
func now(o outcome) attempt { return func() (outcome, bool) { return o, true } }

// call makes a call of the application.
func (r *run) call(e *Event, c *Call, base clock.Time) error {
	try, err := r.prepare(c)
	if err != nil {
		return err
	}
	return r.begin(e, c, try, base)
}

// prepare finds out what a call does. Its errors are mistakes of the script.
func (r *run) prepare(c *Call) (attempt, error) {
	if c.Name == "socket" {
		return r.socket(c), nil
	}
	if c.Name == "poll" {
		return r.pollCall(c)
	}
	f := r.files[c.arg(0).Number]
	if f == nil {
		return nil, fmt.Errorf("%s: there is no descriptor %d", c.Name, c.arg(0).Number)
	}
	n, flags := int(c.arg(2).Number), c.arg(3).Number
	if n < 0 || n > 1<<22 {
		return nil, fmt.Errorf("%s: %d bytes", c.Name, n)
	}
	if a := f.transfer(c, n, flags); a != nil {
		f.r.last = f // assertions are about it from now on
		return a, nil
	}
	switch c.Name {
	case "bind":
		if f.port = listenPort; r.upstream {
			r.bound++
			f.port += r.bound
		}
		return now(outcome{}), nil
	case "listen":
		return now(f.listen(int(c.arg(1).Number))), nil
	case "accept", "accept4":
		if f.listener == nil {
			return now(fail("EINVAL")), nil
		}
		return f.accept(c.Result, flags), nil
	case "connect":
		return f.connect(), nil
	case "shutdown":
		return now(f.shutdown(c.arg(1).Number)), nil
	case "close":
		delete(r.files, c.arg(0).Number)
		if r.last == f {
			r.last = nil
		}
		return now(f.close()), nil
	case "setsockopt":
		return f.setOption(c)
	case "getsockopt":
		return f.getOption(c)
	case "fcntl":
		return f.control(c)
	case "ioctl":
		return f.ioctl(c)
	}
	return nil, fmt.Errorf("unknown call %s", c.Name)
}

// transfer is a call that moves n bytes, nil for any other.
func (f *file) transfer(c *Call, n int, flags int64) attempt {
	switch c.Name {
	case "read":
		return f.read(n, 0)
	case "recv", "recvfrom":
		return f.read(n, flags)
	case "write":
		return f.write(n, 0)
	case "writev":
		return f.write(vector(c.arg(1)), 0)
	case "send":
		return f.write(n, flags)
	case "sendto":
		return f.sendTo(n, flags)
	}
	return nil
}

// socket makes a descriptor with the name that the script gives it.
func (r *run) socket(c *Call) attempt {
	f := r.newFile()
	f.nonblock = c.arg(1).Number&nonBlocking != 0
	r.files[c.Result] = f
	return now(outcome{n: c.Result})
}

// sendTo is sendto(2), which may connect (RFC 7413): without a cookie, or without data, the SYN leaves alone.
func (f *file) sendTo(n int, flags int64) attempt {
	if flags&msgFastOpen == 0 || f.conn != nil {
		return f.write(n, flags)
	}
	f.opts.FastOpen = true
	if e := f.dial(); e != "" {
		return now(fail(e))
	}
	if f.conn.HoldSYN(f.r.now) && n > 0 {
		return f.write(n, flags)
	}
	f.conn.ReleaseSYN()
	if f.nonblock {
		return now(fail("EINPROGRESS"))
	}
	write := f.write(n, flags)
	return func() (outcome, bool) {
		if f.conn.State() < tcp.StateEstablished && f.conn.Err() == nil {
			return outcome{}, false
		}
		return write()
	}
}

// vector returns the bytes of an array of struct iovec.
func vector(v *Value) (n int) {
	for _, x := range v.List {
		if k := len(x.Fields); k > 0 {
			n += int(x.Fields[k-1].Value.Number)
		}
	}
	return n
}

// pollCall is poll(2).
func (r *run) pollCall(c *Call) (attempt, error) {
	wait := c.arg(2).Number
	deadline := r.now.Add(time.Duration(wait) * time.Millisecond)
	if wait < 0 {
		deadline = clock.Never
	}
	for _, v := range c.arg(0).List {
		if fd := v.field("fd"); fd == nil || r.files[fd.Number] == nil {
			return nil, fmt.Errorf("poll: no such descriptor")
		}
	}
	return func() (outcome, bool) {
		n := int64(0)
		for _, v := range c.arg(0).List {
			have := r.files[v.field("fd").Number].events()
			if want := v.field("events"); want != nil {
				have &= want.Number | pollErr | pollHup
			}
			if have != 0 {
				n++
			}
			if want := v.field("revents"); want != nil && n == c.Result && have != want.Number {
				return fail(fmt.Sprintf("revents %#x", have)), true
			}
		}
		if n == 0 && r.now < deadline {
			r.wake = min(r.wake, deadline)
			return outcome{}, false
		}
		return outcome{n: n}, true
	}, nil
}

// number is the value of an option: a number, or one in brackets.
func (v *Value) number() int64 {
	if len(v.List) > 0 {
		return v.List[0].Number
	}
	return v.Number
}

// setOption is setsockopt(2). What only concerns a kernel (SO_REUSEADDR) is accepted.
func (f *file) setOption(c *Call) (attempt, error) {
	name, v := c.arg(2).Name, c.arg(3)
	if known, ok := f.setSocketOption(name, v); known && !ok {
		return now(fail("EINVAL")), nil
	} else if !known && !f.setTCPOption(name, v) {
		return nil, fmt.Errorf("unknown option %q", name)
	}
	f.r.wake = f.r.now
	if f.listener != nil {
		f.listener.SetDeferAccept(f.deferAccept)
		if err := f.listener.SetOptions(&f.opts); err != nil {
			return now(fail(errno(err))), nil
		}
	}
	if f.conn != nil {
		if err := f.conn.SetOptions(f.r.now, &f.opts); err != nil {
			return now(fail(errno(err))), nil
		}
	}
	return now(outcome{}), nil
}

// setSocketOption sets an option of SOL_SOCKET or IP in f.opts. known reports whether the name is one, and ok
// whether the option takes the value.
func (f *file) setSocketOption(name string, v *Value) (known, ok bool) {
	n, o := v.number(), &f.opts
	switch name {
	case "SO_REUSEADDR":
	case "SO_REUSEPORT":
		o.Share = n != 0
	case "SO_SNDBUF":
		o.SendBuffer = int(n)
	case "SO_RCVBUF":
		o.ReceiveBuffer = int(n)
	case "SO_KEEPALIVE":
		o.KeepAlive = tcp.KeepAlive{}
		if n != 0 {
			o.KeepAlive.Idle = 2 * time.Hour
		}
	case "SO_LINGER":
		f.linger = v.field("onoff") != nil && v.field("onoff").Number != 0 && v.field("linger") != nil && v.field("linger").Number == 0
	case "SO_MAX_PACING_RATE":
		o.MaxPacing = uint64(n)
	case "SO_OOBINLINE":
		o.UrgentOutOfBand = n == 0
	case "IP_TTL":
		o.TTL = uint8(n)
	case "IP_TOS", "IPV6_TCLASS":
		o.TOS = uint8(n)
	case "IP_MTU_DISCOVER":
		mode, ok := pathMTUModes[n]
		if ok {
			o.PathMTU = mode
		}
		return true, ok
	default:
		return false, false
	}
	return true, true
}

// setTCPOption sets an option of TCP in f.opts, and reports whether the name is one.
func (f *file) setTCPOption(name string, v *Value) (known bool) {
	n, o := v.number(), &f.opts
	switch name {
	case "TCP_DEFER_ACCEPT":
		f.deferAccept = time.Duration(n) * time.Second
	case "TCP_NOTSENT_LOWAT":
		o.NotSentLowat = int(n)
	case "TCP_NODELAY":
		o.NoDelay = n != 0
	case "TCP_CORK":
		o.Cork = n != 0
	case "TCP_MAXSEG":
		o.MSS = int(n)
	case "TCP_KEEPIDLE":
		o.KeepAlive.Idle = time.Duration(n) * time.Second
	case "TCP_KEEPINTVL":
		o.KeepAlive.Interval = time.Duration(n) * time.Second
	case "TCP_KEEPCNT":
		o.KeepAlive.Count = int(n)
	case "TCP_USER_TIMEOUT":
		o.UserTimeout = time.Duration(n) * time.Millisecond
	case "TCP_QUICKACK":
		o.NoDelayedAck = n != 0
	case "TCP_CONGESTION":
		o.Congestion = v.text()
	case "TCP_FASTOPEN":
		o.FastOpen = n != 0
	case "TCP_FASTOPEN_CONNECT":
		o.FastOpen, f.deferred = n != 0, n != 0
	default:
		return false
	}
	return true
}

// text is a string, or one in brackets.
func (v *Value) text() string {
	if len(v.List) > 0 {
		return v.List[0].Text
	}
	return v.Text
}

// getOption is getsockopt(2): the script names the value that must come back.
func (f *file) getOption(c *Call) (attempt, error) {
	var have int64
	switch name := c.arg(2).Name; name {
	case "SO_ERROR":
		if f.conn != nil {
			e, _ := f.connError()
			have = errnos[e]
		}
	case "TCP_MAXSEG":
		if have = int64(f.opts.MSS); f.conn != nil {
			have = int64(f.conn.Info().MSS)
		}
	default:
		return nil, fmt.Errorf("unknown option %q", name)
	}
	if v := c.arg(3); !v.Any && v.number() != have {
		return now(fail(fmt.Sprintf("EWRONG (the value is %d)", have))), nil
	}
	return now(outcome{}), nil
}

// control is fcntl(2).
func (f *file) control(c *Call) (attempt, error) {
	switch c.arg(1).Name {
	case "F_GETFL":
		n := constants["O_RDWR"]
		if f.nonblock {
			n |= nonBlocking
		}
		return now(outcome{n: n}), nil
	case "F_SETFL":
		f.nonblock = c.arg(2).Number&nonBlocking != 0
		return now(outcome{}), nil
	}
	return nil, fmt.Errorf("unknown command %q", c.arg(1).Name)
}

// ioctl is ioctl(2).
func (f *file) ioctl(c *Call) (attempt, error) {
	if f.conn == nil {
		return now(fail("ENOTCONN")), nil
	}
	var have int64
	switch name := c.arg(1).Name; name {
	case "SIOCINQ", "FIONREAD":
		have = int64(f.conn.ReceiveQueue())
	case "SIOCOUTQ":
		have = int64(f.conn.Unacked())
	case "SIOCOUTQNSD":
		have = int64(f.conn.Unsent())
	case "SIOCATMARK":
		if f.conn.AtMark() {
			have = 1
		}
	default:
		return nil, fmt.Errorf("unknown request %q", name)
	}
	if v := c.arg(2); !v.Any && v.number() != have {
		return now(fail(fmt.Sprintf("EWRONG (the value is %d)", have))), nil
	}
	return now(outcome{}), nil
}

// command takes what "sysctl -q net.ipv4.NAME=VALUE ..." would change for sockets that are made later.
func (r *run) command(c *Command) error {
	words := strings.Fields(c.Text)
	if len(words) == 0 || words[0] != "sysctl" {
		return fmt.Errorf("unknown command %q", c.Text)
	}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") {
			continue
		}
		name, value, _ := strings.Cut(w, "=")
		if err := r.sysctl(strings.TrimPrefix(name, "net.ipv4."), value); err != nil {
			return err
		}
	}
	return nil
}

// sysctl sets one default.
func (r *run) sysctl(name, value string) error {
	o := &r.defaults
	if name == "tcp_congestion_control" {
		o.Congestion = value
		return nil
	}
	n64, err := strconv.ParseInt(value, 0, 64)
	n := int(n64)
	if err != nil {
		return fmt.Errorf("%s wants a number, not %q", name, value)
	}
	switch name {
	case "tcp_timestamps":
		o.NoTimestamps = n == 0
	case "tcp_sack":
		o.NoSACK = n == 0
	case "tcp_window_scaling":
		o.NoScaling = n == 0
	case "tcp_ecn":
		modes := map[int]tcp.ECNMode{0: tcp.ECNOff, 1: tcp.ECNClassic, 2: tcp.ECNPassive, 3: tcp.ECNAccurate, 5: tcp.ECNPassive}
		mode, ok := modes[n]
		if !ok {
			return fmt.Errorf("tcp_ecn is 0, 1, 2, 3 or 5")
		}
		o.ECN = mode
	case "tcp_ecn_option":
		r.noOption = n == 0
	case "tcp_fastopen":
		r.listenFastOpen = n&0x402 == 0x402
	case "tcp_mtu_probing":
		o.PathProbe = n != 0
	default:
		return fmt.Errorf("unknown sysctl %s", name)
	}
	return nil
}

// inputICMP passes an ICMP error to the Mux.
func (r *run) inputICMP(t *wire.Tuple, e *ip.ICMPError) {
	if r.mux.ICMP(r.now, t, e.Seq(), *e) && e.Kind == ip.TooBig {
		r.mtu = min(r.mtu, e.MTU)
	}
}
