package defence

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// The program stays attached to an interface that is renamed, also where another takes its name.
func TestARenamedInterfaceStaysDefended(t *testing.T) {
	n := testnet.For(t, "mr-defname")
	a, b := n.Namespace("a"), n.Namespace("b")
	if err := errors.Join(n.Link(a, "eth0", b, "eth0"), a.Up("eth0")); err != nil {
		t.Fatal(err)
	}
	var d *Defence
	err := a.Do(func() (err error) {
		if d, err = Open(read(t, "", "")); err == nil {
			err = d.Attach("eth0")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(d.Detach(), d.Close()); err != nil {
			t.Error(err)
		}
	}()
	at := d.devices[0].at
	if out, err := a.Run("ip", "link", "set", "eth0", "name", "other0"); err != nil {
		t.Fatal(out, err)
	}
	d.reattach()
	if err := n.Link(a, "eth0", b, "eth1"); err != nil {
		t.Fatal(err)
	}
	d.reattach()
	if d.devices[0].at != at || at == nil {
		t.Errorf("%+v", d.devices[0])
	}
	if out, err := a.Run("ip", "link", "del", "other0"); err != nil {
		t.Fatal(out, err)
	}
	d.reattach() // the interface is gone, and one of its name is there
	if dev := d.devices[0]; dev.at == at || dev.at == nil {
		t.Errorf("%+v", dev)
	}
}
