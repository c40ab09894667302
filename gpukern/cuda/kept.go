package cuda

import "slices"

// kept is something that lives in a device's context until somebody closes it, at the latest the device.
type kept struct {
	free  func() error // gives it back to the driver; nil where there is nothing to give
	unmap func() error // gives host memory back, once the device cannot reach it; nil where there is none
}

// keep remembers what the owner has made.
func (d *Device) keep(k *kept) { d.kept = append(d.kept, k) }

// drop gives k back, once. A context that is lost answers nothing more: the driver's part ends with the
// context, and host memory is unmapped only then. For the owner.
func (d *Device) drop(k *kept) error {
	i := slices.Index(d.kept, k)
	if i < 0 {
		return nil
	}
	d.kept = slices.Delete(d.kept, i, i+1)
	var err error
	if k.free != nil && d.Lost() == nil {
		err = d.note(k.free())
	}
	switch {
	case k.unmap == nil:
	case d.Lost() != nil || err != nil:
		d.after = append(d.after, k.unmap)
	default:
		err = k.unmap()
	}
	return err
}

// close is drop for everybody else.
func (d *Device) close(k *kept) error {
	err := d.do(func() error { return d.drop(k) })
	if err == ErrClosed { // the device's Close gave it back
		return nil
	}
	return err
}
