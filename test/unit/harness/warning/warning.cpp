int narrow(double wide) { return wide; }
