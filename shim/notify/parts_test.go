package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// parts are Go programs, which speak with the kernel without libc. What they print is compared.
var parts = map[string]func(args []string) error{
	"get": get, "serve": serve, "many": many, "lookup": lookup, "packets": packets, "datagrams": datagrams, "interfaces": interfaces, "signals": signals, "listen": listenOnly, "retry": retryAccept,
}

func get(args []string) error {
	for _, url := range args {
		r, err := http.Get(url)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err
		}
		fmt.Printf("%s", b)
	}
	return nil
}

// serve answers requests until /quit.
func serve(args []string) error {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	s, over := &http.Server{}, make(chan struct{})
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v asks %v for %s", r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey), r.URL)
		if r.URL.Path == "/quit" {
			go func() {
				_ = s.Shutdown(context.Background()) // it waits for the answer to this request
				close(over)
			}()
		}
	})
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	<-over
	return nil
}

// many opens connections to an echo server, all at the same time.
func many(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	errs := make(chan error, n)
	var open, all sync.WaitGroup
	open.Add(n)
	for i := range n {
		all.Go(func() {
			c, err := net.Dial("tcp", args[0])
			open.Done()
			if err != nil {
				errs <- err
				return
			}
			defer c.Close()
			open.Wait()
			errs <- echo(c, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 500))
		})
	}
	all.Wait()
	for range n {
		err = errors.Join(err, <-errs)
	}
	fmt.Println(n, "connections")
	return err
}

// echo sends b and compares what comes back.
func echo(c net.Conn, b []byte) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return errors.New("other bytes came back")
	}
	return nil
}

// lookup asks the DNS server in its first argument.
func lookup(args []string) error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, args[0])
	}}
	addrs, err := r.LookupHost(context.Background(), args[1])
	fmt.Println(addrs)
	return err
}

// packets uses UDP sockets in the ways that work, and in those that do not.
func packets(args []string) error {
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	if err := echo(c, []byte("a datagram")); err != nil {
		return err
	}
	bound, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(198, 18, 0, 1)}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(args[0])))
	if err != nil {
		return err
	}
	if err := echo(bound, bytes.Repeat([]byte("x"), 1200)); err != nil {
		return err
	}
	if a := bound.LocalAddr().(*net.UDPAddr); !a.IP.Equal(net.IPv4(198, 18, 0, 1)) || a.Port == 0 {
		return fmt.Errorf("bound to %v", a)
	}
	u, err := net.ListenPacket("udp4", "198.18.0.1:53")
	if err != nil {
		return err
	}
	if _, err := u.WriteTo([]byte("unconnected"), c.RemoteAddr()); err != nil {
		return err
	}
	got := make([]byte, 99)
	n, from, err := u.ReadFrom(got)
	fmt.Println("unconnected:", string(got[:n]), from, err)
	_, err = c.(*net.UDPConn).WriteTo([]byte("x"), c.RemoteAddr())
	fmt.Println("with a peer:", errors.Is(err, net.ErrWriteToConnected))
	_, err = net.ListenPacket("ip4:icmp", "0.0.0.0")
	fmt.Println("raw:", errors.Is(err, syscall.EPERM))
	_, err = net.Listen("tcp4", fmt.Sprintf("198.18.0.1:%d", servicePort))
	fmt.Println("service:", errors.Is(err, syscall.EADDRINUSE))
	return nil
}

// interfaces prints what the program sees of them.
func interfaces([]string) error {
	list, err := net.Interfaces()
	for _, n := range list {
		fmt.Println(n.Index, n.Name, n.MTU, n.Flags)
		addrs, e := n.Addrs()
		err = errors.Join(err, e)
		for _, a := range addrs {
			fmt.Println(" ", a)
		}
	}
	if n, e := net.InterfaceByName("lo"); e != nil || n.Index != 1 {
		err = errors.Join(err, fmt.Errorf("lo: %v, %v", n, e))
	}
	return err
}

// datagrams answers by a UDP socket until it gets "quit": what comes by an odd call with oob, the others with their sender's address.
func datagrams(args []string) error {
	p, err := net.ListenPacket(args[0], args[1])
	if err != nil {
		return err
	}
	u := p.(*net.UDPConn)
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) {
		if args[0] == "udp4" {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_PKTINFO, 1)
		} else {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_RECVPKTINFO, 1)
		}
	}); err != nil {
		return err
	}
	fmt.Println("at", u.LocalAddr())
	b, oob := make([]byte, 1<<16), make([]byte, 100)
	for odd := false; ; odd = !odd {
		if !odd {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return err
			}
			if string(b[:n]) == "quit" {
				return nil
			}
			if _, err := u.WriteTo(fmt.Appendf(b[:n], " from %v", from), from); err != nil {
				return err
			}
			continue
		}
		n, k, _, from, err := u.ReadMsgUDP(b, oob)
		if err != nil {
			return err
		}
		info, err := syscall.ParseSocketControlMessage(oob[:k])
		if err != nil || len(info) != 1 {
			return fmt.Errorf("control messages: %v, %v", info, err)
		}
		if _, _, err := u.WriteMsgUDP(fmt.Appendf(b[:n], " by message type %d", info[0].Header.Type), oob[:k], from); err != nil {
			return err
		}
	}
}

// signals opens connections while signals come at each thread.
func signals(args []string) error {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-got:
			default:
				_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
				_ = syscall.Kill(os.Getpid(), syscall.SIGURG)
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	n, err := 200, error(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	for i := 0; i < n && err == nil; i++ {
		to := args[0]
		if i%2 == 0 {
			to = l.Addr().String()
		}
		var c net.Conn
		if c, err = net.Dial("tcp", to); err == nil {
			err = echo(c, []byte("under fire"))
			c.Close()
		}
	}
	close(stop)
	storm.Wait()
	fmt.Println(n, "connections")
	return err
}

// acceptsInVain is how often retryAccept calls accept after the end of the node.
const acceptsInVain = 3 * freeEnds

// retryAccept listens, and accepts again after each error, as servers do.
func retryAccept(args []string) error {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	for failures := 0; failures < acceptsInVain; {
		if _, err := l.Accept(); err != nil {
			failures++
		}
	}
	return nil
}

// listenOnly listens until it is killed.
func listenOnly(args []string) error {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, c)
		fmt.Println("the end:", err)
		c.Close()
	}
}
