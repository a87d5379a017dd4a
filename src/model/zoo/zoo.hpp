#pragma once
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::model {

Model make_mlp(int classes);
Model make_cifar10_cnn(int classes);
/// `depth` = 6n + 2.
Model make_cifar_resnet(int depth, int classes);
/// `depth` is 18, 34, 50, 101 or 152.
Model make_imagenet_resnet(int depth, int classes);
Model make_inception_v3(int classes);

}  // namespace ringtrain::model
