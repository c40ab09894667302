package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/pmd"
)

// This file explains what a replay could not read or send, each with a remedy.

// unsent returns how many packets the output device refused, with the likely reason; nil where it sent all.
func unsent(o *replay.Output) error {
	if o == nil || o.TxInvalid == 0 {
		return nil
	}
	err := fmt.Errorf("%s refused %s of %s packets, which were not sent", o.Device, group(o.TxInvalid), group(o.Packets+o.TxInvalid))
	if o.MTU > 0 && o.Longest > o.MTU {
		return fmt.Errorf("%w\n  the longest has %d bytes behind its Ethernet header, the MTU is %d: `ip link set %s mtu %d`, if the link can",
			err, o.Longest, o.MTU, o.Device, o.Longest)
	}
	return fmt.Errorf("%w\n  the kernel's reasons are counted by `ip -s -s link show %s`", err, o.Device)
}

// allUnreadable reports whether no file could be replayed as a whole.
func allUnreadable(files []replay.File) bool {
	for i := range files {
		if unreadable(&files[i]) == nil {
			return false
		}
	}
	return true
}

// unreadable returns why a file was not replayed as a whole.
func unreadable(f *replay.File) error {
	if f.Err == nil && f.Packets == 0 && f.Records.Unsupported > 0 {
		return fmt.Errorf("%s: %w", f.Path, capture.ErrLinkType)
	}
	return f.Err
}

// remedied adds a remedy to an error about a capture.
func remedied(err error) error {
	if driver := new(pmd.OpError); errors.As(err, &driver) {
		err = driver.Err // without device and queue
	}
	number, record := new(fs.PathError), new(capture.Error)
	switch {
	case errors.As(err, &number) && errors.Is(err, fs.ErrNotExist) && strings.Trim(number.Path, "0123456789") == "":
		return fmt.Errorf("%w\n  a number of flows follows its option with =, as in --classify=%s", err, number.Path)
	case errors.Is(err, capture.ErrFormat):
		return fmt.Errorf("%w\n  pcap, pcapng and snoop are read; convert others with `editcap -F pcapng IN OUT`", err)
	case errors.As(err, &record) && record.Record == 0 && errors.Is(err, capture.ErrTruncated):
		return fmt.Errorf("%w\n  the file has no packets: it ends before the first", err)
	case errors.Is(err, capture.ErrTruncated), errors.Is(err, capture.ErrCorrupt):
		return fmt.Errorf("%w\n  the packets before that were counted; `editcap IN OUT` writes a file that ends there", err)
	case errors.Is(err, capture.ErrLinkType):
		return fmt.Errorf("%w\n  record it again on an Ethernet or IP interface", err)
	}
	return err
}
