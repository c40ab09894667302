// Command bogoshim is the program that BoringSSL's TLS test runner (ssl/test/runner, "BoGo") starts for each of its tests:
// it connects to the runner, makes a handshake as its flags say, checks what came of it, and echoes data with all bits
// inverted.
//
// It speaks TLS by a tls.Engine over the kernel's TCP (-millrace engine), by the same over Millrace's own TCP
// (-millrace stack), or by crypto/tls alone (-millrace crypto/tls), so that their results can be compared.
// It is run by TestBoGo of internal/testkit/interop.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

// unimplemented is the exit status that has the runner skip a test.
const unimplemented = 89

func main() {
	f, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(unimplemented)
	}
	if f.isHandshakerSupported {
		fmt.Println("No")
		return
	}
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes one connection, and as many more as are to resume its session.
func run(f *flags) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	for i := range f.resumeCount + 1 {
		if i > 0 && f.onResumeECHConfigList != nil {
			config.EncryptedClientHelloConfigList = f.onResumeECHConfigList
		}
		host := "127.0.0.1"
		if f.ipv6 {
			host = "::1"
		}
		conn, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(f.port)))
		if err != nil {
			return err
		}
		if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, f.shimID)); err != nil {
			return err
		}
		s, err := newSession(f, conn.(*net.TCPConn), config)
		if err != nil {
			return err
		}
		echoErr := echo(s, i == 0 && f.shimWritesFirst)
		if echoErr != io.EOF {
			s.shutdown()
			return f.checkError(echoErr)
		}
		if err := f.check(s.ConnectionState(), i); err != nil {
			return err
		}
		s.close()
	}
	return nil
}

// echo answers until the connection ends, and returns why it ended.
func echo(s session, first bool) error {
	if first {
		if _, err := s.Write([]byte("hello")); err != nil {
			return err
		}
	}
	buf := make([]byte, 500)
	for {
		n, err := s.Read(buf)
		for i := range buf[:n] {
			buf[i] ^= 0xff
		}
		if n > 0 {
			if _, err := s.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

var errUsage = errors.New("bogoshim: -millrace is engine, stack or crypto/tls")

// flagSet returns an empty set that reports unknown flags as errors.
func flagSet() *flag.FlagSet {
	s := flag.NewFlagSet("bogoshim", flag.ContinueOnError)
	s.SetOutput(io.Discard)
	return s
}
