"""Prints what TensorFlow makes of one image under a few colour jitters, in the order of the Inception recipe (brightness,
saturation, hue, contrast, clip to [0, 1]), in grey levels: the numbers of test/unit/compute/color_jitter_test.cpp. A development script: it
needs tensorflow-cpu from PyPI."""
import tensorflow as tf

IMAGE = [[10, 20, 30], [200, 100, 50], [0, 255, 7], [250, 250, 250], [3, 2, 1], [90, 180, 240]]  # 2 x 3 pixels
JITTERS = [(-20, 1.5, 0.5, -0.2), (32, 0.5, 1.5, 0.2), (-25, 0.6, 1.3, 0.05), (-32, 1.2, 0.8, -0.1)]  # brightness, contrast, saturation, hue

for brightness, contrast, saturation, hue in JITTERS:
    x = tf.reshape(tf.constant(IMAGE, tf.float32), (2, 3, 3)) / 255
    x = tf.image.adjust_brightness(x, brightness / 255)
    x = tf.image.adjust_saturation(x, saturation)
    x = tf.image.adjust_hue(x, hue)
    x = tf.image.adjust_contrast(x, contrast)
    x = tf.clip_by_value(x, 0, 1) * 255
    print(", ".join(f"{v:.3f}" for v in x.numpy().ravel()))
